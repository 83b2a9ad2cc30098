#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/when_any.hpp>

namespace rapidsmpf::streaming {
namespace {

using std::chrono::milliseconds;
using TimerClock = std::chrono::steady_clock;

TEST(Timer, SleepersGoOnWhenTheirTimeHasPassed) {
    auto const executor = std::make_shared<Executor>(1);
    auto const begin = TimerClock::now();
    std::vector<int> order;
    auto sleep = [](std::shared_ptr<Executor> on, milliseconds time, int name,
                    std::vector<int>* to) -> Task<void> {
        co_await on->schedule();
        co_await sleep_for(on, time);
        EXPECT_TRUE(on->runs_this_thread());
        to->push_back(name);
    };
    std::vector<Task<void>> tasks;
    tasks.push_back(sleep(executor, milliseconds{60}, 2, &order));
    tasks.push_back(sleep(executor, milliseconds{5}, 1, &order));
    tasks.push_back(sleep(executor, milliseconds{-5}, 0, &order));
    sync_wait(when_all(std::move(tasks)));
    EXPECT_GE(TimerClock::now() - begin, milliseconds{60});
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Timer, ACancelledSleepEndsAtOnce) {
    auto const executor = std::make_shared<Executor>(1);
    CancellationSource source;
    auto future = executor->spawn(sleep_for(executor, std::chrono::hours{1}, source.token()));
    source.cancel(std::make_exception_ptr(std::domain_error{"no more"}));
    EXPECT_THROW(future.get(), std::domain_error);
    EXPECT_THROW(sync_wait(sleep_for(executor, std::chrono::hours{1}, source.token())), std::domain_error);
}

TEST(WhenAny, TheFirstToEndCancelsTheOthers) {
    auto const executor = std::make_shared<Executor>(2);
    CancellationSource others;
    std::vector<Task<void>> tasks;
    tasks.push_back(sleep_for(executor, std::chrono::hours{1}, others.token()));
    tasks.push_back(sleep_for(executor, milliseconds{1}, others.token()));
    EXPECT_EQ(sync_wait(when_any(std::move(tasks), others)), 1);
    EXPECT_TRUE(others.is_cancelled());
}

TEST(WhenAny, GivesTheValueOrTheErrorOfTheFirst) {
    auto const executor = std::make_shared<Executor>(1);
    auto answer = [](std::shared_ptr<Executor> on, int value, CancellationToken token) -> Task<int> {
        milliseconds const time{value};
        co_await sleep_for(on, time, std::move(token));
        if (value == 0) {
            throw std::domain_error{"no value"};
        }
        co_return value;
    };
    for (int const least : {3, 0}) {
        CancellationSource others;
        std::vector<Task<int>> tasks;
        tasks.push_back(answer(executor, 60'000, others.token()));
        tasks.push_back(answer(executor, least, others.token()));
        if (least == 0) {
            EXPECT_THROW(sync_wait(when_any(std::move(tasks), others)), std::domain_error);
        } else {
            auto const [index, value] = sync_wait(when_any(std::move(tasks), others));
            EXPECT_EQ(index, 1);
            EXPECT_EQ(value, 3);
        }
    }
    std::vector<Task<int>> none;
    CancellationSource others;
    EXPECT_THROW(sync_wait(when_any(std::move(none), others)), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf::streaming

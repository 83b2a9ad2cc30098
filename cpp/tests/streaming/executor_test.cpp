#include <rapidsmpf/streaming/executor.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

TEST(Executor, RunsCoroutinesOnItsOwnThreads) {
    Executor executor{2};
    auto body = [](Executor& on) -> Task<bool> {
        co_await on.schedule();
        co_return on.runs_this_thread();
    };
    EXPECT_TRUE(sync_wait(body(executor)));
    EXPECT_FALSE(executor.runs_this_thread());
}

TEST(Executor, RunsOneCoroutineToItsSuspensionBeforeTheNext) {
    Executor executor{1};
    auto order = std::make_shared<std::vector<int>>();
    auto body = [](Executor& on, std::shared_ptr<std::vector<int>> log, int id) -> Task<void> {
        for (int i = 0; i < 3; ++i) {
            co_await on.schedule();
            log->push_back(id);
        }
    };
    auto all = [&](Executor& on) -> Task<void> {
        co_await on.schedule();  // so that no member starts before all are queued
        std::vector<Task<void>> tasks;
        for (int id = 0; id < 3; ++id) {
            tasks.push_back(body(on, order, id));
        }
        co_await when_all(std::move(tasks));
    };
    sync_wait(all(executor));
    EXPECT_EQ(*order, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(Executor, RejectsZeroThreads) {
    EXPECT_THROW(Executor{0}, std::invalid_argument);
}

TEST(Executor, TakesTheNumberOfThreadsFromTheOptions) {
    EXPECT_EQ(Executor::from_options(config::Options{})->num_threads(), 1U);
    EXPECT_EQ(Executor::from_options(config::Options{{{"num_streaming_threads", "3"}}})->num_threads(), 3U);
    for (auto const* text : {"0", "-1", "two", "2x"}) {
        EXPECT_THROW(
            (void)Executor::from_options(config::Options{{{"num_streaming_threads", text}}}),
            std::invalid_argument)
            << text;
    }
}

TEST(Executor, SpawnReportsTheEnd) {
    Executor executor{1};
    auto body = [](bool fail) -> Task<void> {
        if (fail) {
            throw std::runtime_error{"spawned"};
        }
        co_return;
    };
    EXPECT_NO_THROW(executor.spawn(body(false)).get());
    EXPECT_THROW(executor.spawn(body(true)).get(), std::runtime_error);
}

TEST(Executor, BlockingCallsRunElsewhereAndComeBack) {
    Executor executor{1};
    auto body = [](Executor& on) -> Task<std::pair<bool, bool>> {
        co_await on.schedule();
        auto call = [&on] { return on.runs_this_thread(); };
        auto const during = co_await on.run_blocking(std::move(call));
        co_return std::pair{during, on.runs_this_thread()};
    };
    auto const [during, after] = sync_wait(body(executor));
    EXPECT_FALSE(during);
    EXPECT_TRUE(after);
}

TEST(Executor, BlockingCallsThatWaitForEachOtherAllRun) {
    Executor executor{1};
    constexpr int calls = 16;
    std::barrier all_there{calls};  // passes only if every call has a thread at the same time
    auto body = [&all_there](Executor& on) -> Task<void> {
        auto call = [&all_there] { all_there.arrive_and_wait(); };
        co_await on.run_blocking(std::move(call));
    };
    std::vector<Task<void>> tasks;
    for (int i = 0; i < calls; ++i) {
        tasks.push_back(body(executor));
    }
    sync_wait(when_all(std::move(tasks)));
}

TEST(Executor, BlockingCallsDoNotStarveCoroutines) {
    Executor executor{1};
    std::latch release{1};
    auto blocked = [&release](Executor& on) -> Task<void> {
        auto call = [&release] { release.wait(); };
        co_await on.run_blocking(std::move(call));
    };
    auto releasing = [&release](Executor& on) -> Task<void> {
        co_await on.schedule();
        release.count_down();
    };
    std::vector<Task<void>> tasks;
    tasks.push_back(blocked(executor));
    tasks.push_back(releasing(executor));
    sync_wait(when_all(std::move(tasks)));
}

TEST(Executor, BlockingCallsReuseThreads) {
    Executor executor{1};
    auto body = [](Executor& on) -> Task<void> {
        for (int i = 0; i < 100; ++i) {
            auto call = [] {};
            co_await on.run_blocking(std::move(call));
        }
    };
    sync_wait(body(executor));
    EXPECT_EQ(executor.num_blocking_threads(), 1U);
}

TEST(Executor, BlockingCallsThrowIntoTheCoroutine) {
    Executor executor{1};
    auto body = [](Executor& on) -> Task<int> {
        auto call = []() -> int { throw std::out_of_range{"from the call"}; };
        co_return co_await on.run_blocking(std::move(call));
    };
    EXPECT_THROW((void)sync_wait(body(executor)), std::out_of_range);
}

TEST(Executor, MayBeDestroyedOnItsOwnThread) {
    std::latch destroyed{1};
    auto body = [&destroyed](std::shared_ptr<Executor> executor) -> Task<void> {
        co_await executor->schedule();
        executor.reset();
        destroyed.count_down();
    };
    {
        auto executor = std::make_shared<Executor>(2);
        auto future = executor->spawn(body(executor));
        executor.reset();
        future.get();
    }
    destroyed.wait();
}

TEST(Executor, ShutdownIsIdempotentAndLateCoroutinesStillRun) {
    Executor executor{2};
    executor.shutdown();
    executor.shutdown();
    auto body = [](Executor& on) -> Task<int> {
        co_await on.schedule();
        auto call = [] { return 5; };
        co_return co_await on.run_blocking(std::move(call));
    };
    EXPECT_EQ(sync_wait(body(executor)), 5);
}

// Pauses about as long as a thread looks for work before it sleeps: what comes as it falls asleep has to wake it.
TEST(Executor, HearsOfWhatComesFromOutsideHoweverSoon) {
    for (std::size_t const threads : {1U, 2U, 4U}) {
        Executor executor{threads};
        std::atomic<int> ended{0};
        auto body = [&ended](Executor& on) -> Task<void> {
            co_await on.schedule();
            ++ended;
        };
        std::minstd_rand chance{static_cast<std::minstd_rand::result_type>(threads)};
        constexpr int count = 5000;
        std::vector<std::future<void>> futures;
        for (int i = 0; i < count; ++i) {
            futures.push_back(executor.spawn(body(executor)));
            auto const until =
                std::chrono::steady_clock::now() + std::chrono::nanoseconds{chance() % 120'000};
            while (std::chrono::steady_clock::now() < until) {
            }
            if (i % 16 == 0) {
                futures.back().wait();  // hangs if no thread was woken
            }
        }
        for (auto& future : futures) {
            future.wait();
        }
        EXPECT_EQ(ended, count);
    }
}

TEST(Executor, DestructorLetsReadyCoroutinesEnd) {
    std::atomic<int> ended{0};
    auto body = [&ended](Executor& on) -> Task<void> {
        for (int i = 0; i < 10; ++i) {
            co_await on.schedule();
        }
        auto call = [&ended] { ++ended; };
        co_await on.run_blocking(std::move(call));
    };
    std::vector<std::future<void>> futures;
    {
        Executor executor{2};
        for (int i = 0; i < 20; ++i) {
            futures.push_back(executor.spawn(body(executor)));
        }
    }
    EXPECT_EQ(ended, 20);
    for (auto& future : futures) {
        EXPECT_EQ(future.wait_for(std::chrono::seconds{0}), std::future_status::ready);
    }
}

}  // namespace
}  // namespace rapidsmpf::streaming

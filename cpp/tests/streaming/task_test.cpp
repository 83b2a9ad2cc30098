#include <rapidsmpf/streaming/task.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

Task<int> give(int value) {
    co_return value;
}

Task<int> throw_text(std::string text) {
    throw std::runtime_error{text};
    co_return 0;
}

Task<int> add(int a, int b) {
    auto const first = co_await give(a);
    auto const second = co_await give(b);
    co_return first + second;
}

TEST(Task, ReturnsItsValue) {
    EXPECT_EQ(sync_wait(add(1, 41)), 42);
}

TEST(Task, IsLazy) {
    bool started = false;
    auto body = [](bool* flag) -> Task<void> {
        *flag = true;
        co_return;
    };
    auto task = body(&started);
    EXPECT_FALSE(started);
    sync_wait(std::move(task));
    EXPECT_TRUE(started);
}

TEST(Task, DestroyedUnstartedFreesItsArguments) {
    auto value = std::make_shared<int>(1);
    auto body = [](std::shared_ptr<int> held) -> Task<int> { co_return *held; };
    {
        auto task = body(value);
        EXPECT_EQ(value.use_count(), 2);
    }
    EXPECT_EQ(value.use_count(), 1);
}

TEST(Task, CarriesExceptionsThroughAwaits) {
    auto outer = []() -> Task<int> { co_return 1 + co_await throw_text("inner"); };
    try {
        (void)sync_wait(outer());
        FAIL() << "no exception";
    } catch (std::runtime_error const& error) {
        EXPECT_STREQ(error.what(), "inner");
    }
}

TEST(Task, ReturnsMoveOnlyValues) {
    auto body = []() -> Task<std::unique_ptr<int>> { co_return std::make_unique<int>(7); };
    EXPECT_EQ(*sync_wait(body()), 7);
}

TEST(Task, FreesItsFrameBeforeSyncWaitReturns) {
    Executor executor{1};
    auto value = std::make_shared<int>(1);
    auto body = [](Executor& on, std::shared_ptr<int> held) -> Task<int> {
        co_await on.schedule();
        co_return *held;
    };
    EXPECT_EQ(sync_wait(body(executor, value)), 1);
    EXPECT_EQ(value.use_count(), 1);
}

TEST(Task, TwoMillionSynchronousAwaitsKeepTheStack) {
    auto loop = []() -> Task<std::uint64_t> {
        std::uint64_t sum = 0;
        for (int i = 0; i < 2'000'000; ++i) {
            sum += static_cast<std::uint64_t>(co_await give(i & 1));
        }
        co_return sum;
    };
    EXPECT_EQ(sync_wait(loop()), 1'000'000U);
}

TEST(Task, ManyAsynchronousAwaitsKeepTheStack) {
    Executor executor{1};
    auto hop = [](Executor& on) -> Task<int> {
        co_await on.schedule();
        co_return 1;
    };
    auto loop = [&hop](Executor& on) -> Task<int> {
        int sum = 0;
        for (int i = 0; i < 200'000; ++i) {
            sum += co_await hop(on);
        }
        co_return sum;
    };
    EXPECT_EQ(sync_wait(loop(executor)), 200'000);
}

TEST(Task, EndRacingWithSuspensionResumesOnce) {
    Executor executor{2};
    auto hop = [](Executor& on, int value) -> Task<int> {
        co_await on.schedule();
        co_return value;
    };
    // The inner task may end on the other thread while the outer one is still suspending.
    auto loop = [&hop](Executor& on) -> Task<std::int64_t> {
        std::int64_t sum = 0;
        for (int i = 0; i < 20'000; ++i) {
            sum += co_await hop(on, i);
        }
        co_return sum;
    };
    EXPECT_EQ(sync_wait(loop(executor)), 20'000LL * 19'999 / 2);
}

TEST(WhenAll, ReturnsValuesByPosition) {
    Executor executor{2};
    auto hop = [](Executor& on, int value) -> Task<int> {
        co_await on.schedule();
        co_return value;
    };
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 100; ++i) {
        tasks.push_back(hop(executor, i));
    }
    auto const values = sync_wait(when_all(std::move(tasks)));
    ASSERT_EQ(values.size(), 100U);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
    }
}

TEST(WhenAll, EndsAtOnceWithoutTasks) {
    sync_wait(when_all(std::vector<Task<void>>{}));
}

TEST(WhenAll, WaitsForAllBeforeItThrows) {
    Executor executor{2};
    int ended = 0;
    auto count = [](Executor& on, int* counter) -> Task<void> {
        for (int i = 0; i < 100; ++i) {
            co_await on.schedule();
        }
        ++*counter;
    };
    auto fail = []() -> Task<void> {
        throw std::runtime_error{"first"};
        co_return;
    };
    std::vector<Task<void>> tasks;
    tasks.push_back(fail());
    tasks.push_back(count(executor, &ended));
    EXPECT_THROW(sync_wait(when_all(std::move(tasks))), std::runtime_error);
    EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace rapidsmpf::streaming

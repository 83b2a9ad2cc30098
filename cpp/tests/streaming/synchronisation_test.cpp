#include <rapidsmpf/streaming/synchronisation.hpp>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

struct Inside {
    std::atomic<int> now{0};
    std::atomic<int> most{0};
    std::atomic<int> entered{0};
};

Task<void> enter(AsyncSemaphore* semaphore, Executor* executor, Inside* inside) {
    co_await executor->schedule();
    for (int i = 0; i < 100; ++i) {
        auto permit = co_await semaphore->acquire();
        auto const now = ++inside->now;
        inside->most = std::max(inside->most.load(), now);
        ++inside->entered;
        co_await executor->schedule();
        --inside->now;
    }
}

TEST(AsyncSemaphoreTest, LetsInAsManyAsItHasPermits) {
    for (std::size_t threads : {1, 4}) {
        auto const executor = std::make_shared<Executor>(threads);
        AsyncSemaphore semaphore{executor, 3};
        Inside inside;
        std::vector<Task<void>> tasks;
        for (int i = 0; i < 10; ++i) {
            tasks.push_back(enter(&semaphore, executor.get(), &inside));
        }
        sync_wait(when_all(std::move(tasks)));
        EXPECT_LE(inside.most.load(), 3);
        EXPECT_EQ(inside.entered.load(), 1000);
        EXPECT_EQ(semaphore.available(), 3);
        EXPECT_EQ(semaphore.waiting(), 0);
    }
}

Task<void> fail_in_acquire(AsyncSemaphore* semaphore) {
    EXPECT_THROW(co_await semaphore->acquire(), std::domain_error);
}

Task<void> cancel_after(Executor* executor, AsyncSemaphore* semaphore) {
    co_await executor->schedule();
    semaphore->cancel(std::make_exception_ptr(std::domain_error{"cancelled"}));
}

TEST(AsyncSemaphoreTest, CancelEndsWaitsOfAllTimes) {
    auto const executor = std::make_shared<Executor>(2);
    AsyncSemaphore semaphore{executor, 1};
    auto const held = semaphore.try_acquire();
    ASSERT_TRUE(held.has_value());
    EXPECT_FALSE(semaphore.try_acquire().has_value());
    std::vector<Task<void>> tasks;
    tasks.push_back(fail_in_acquire(&semaphore));
    tasks.push_back(fail_in_acquire(&semaphore));
    tasks.push_back(cancel_after(executor.get(), &semaphore));
    sync_wait(when_all(std::move(tasks)));
    sync_wait(fail_in_acquire(&semaphore));
    EXPECT_THROW((void)semaphore.try_acquire(), std::domain_error);
}

Task<void> count_locked(AsyncMutex* mutex, Executor* executor, int* count) {
    co_await executor->schedule();
    for (int i = 0; i < 1000; ++i) {
        auto const guard = co_await mutex->lock();
        ++*count;  // the mutex is what keeps this from being a race
    }
}

TEST(AsyncMutexTest, LetsOneInAtATime) {
    auto const executor = std::make_shared<Executor>(4);
    AsyncMutex mutex{executor};
    int count = 0;
    std::vector<Task<void>> tasks;
    for (int i = 0; i < 8; ++i) {
        tasks.push_back(count_locked(&mutex, executor.get(), &count));
    }
    sync_wait(when_all(std::move(tasks)));
    EXPECT_EQ(count, 8000);
    auto const guard = mutex.try_lock();
    EXPECT_TRUE(guard.has_value());
    EXPECT_FALSE(mutex.try_lock().has_value());
}

Task<void> wait_for(AsyncEvent* event, std::atomic<int>* woken) {
    co_await event->wait();
    ++*woken;
}

Task<void> set_after(Executor* executor, AsyncEvent* event, std::atomic<int>* woken) {
    co_await executor->schedule();
    EXPECT_EQ(woken->load(), 0);
    event->set();
}

TEST(AsyncEventTest, WakesAllWhoWait) {
    auto const executor = std::make_shared<Executor>(1);
    AsyncEvent event{executor};
    std::atomic<int> woken{0};
    std::vector<Task<void>> tasks;
    tasks.push_back(wait_for(&event, &woken));
    tasks.push_back(wait_for(&event, &woken));
    tasks.push_back(set_after(executor.get(), &event, &woken));
    sync_wait(when_all(std::move(tasks)));
    EXPECT_EQ(woken.load(), 2);
    EXPECT_TRUE(event.is_set());
    sync_wait(wait_for(&event, &woken));
    event.reset();
    EXPECT_FALSE(event.is_set());
    event.cancel(std::make_exception_ptr(std::domain_error{"cancelled"}));
    EXPECT_THROW(sync_wait(wait_for(&event, &woken)), std::domain_error);
}

}  // namespace
}  // namespace rapidsmpf::streaming

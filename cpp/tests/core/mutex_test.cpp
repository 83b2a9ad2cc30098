#include <rapidsmpf/core/mutex.hpp>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

class Counter {
  public:
    void add() {
        MutexLock const lock{mutex_};
        ++count_;
        changed_.notify_all();
    }
    void wait_for(int count) {
        UniqueLock lock{mutex_};
        changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return count_ >= count; });
    }
    [[nodiscard]] bool wait_for(int count, std::chrono::milliseconds time) {
        UniqueLock lock{mutex_};
        return changed_.wait_for(lock, time, [&]() RAPIDSMPF_REQUIRES(mutex_) { return count_ >= count; });
    }
    // Lets `others` run with the mutex unlocked; returns whether it is held again after that.
    template <typename Function>
    [[nodiscard]] bool without(Function const& others) {
        MutexLock const lock{mutex_};
        try {
            MutexUnlock const unlocked{mutex_};
            others();
        } catch (std::runtime_error const&) {  // NOLINT(bugprone-empty-catch)
            // Held again all the same.
        }
        bool taken = false;
        std::thread{[&] { taken = try_add(); }}.join();
        return !taken;
    }
    [[nodiscard]] bool try_add() {
        if (!mutex_.try_lock()) {
            return false;
        }
        ++count_;
        mutex_.unlock();
        return true;
    }
    [[nodiscard]] int count() {
        UniqueLock const lock{mutex_};
        return count_;
    }

  private:
    Mutex mutex_;
    ConditionVariable changed_;
    int count_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

TEST(Mutex, OneAtATime) {
    Counter counter;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 1000; ++k) {
                counter.add();
            }
        });
    }
    counter.wait_for(4000);
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(counter.count(), 4000);
}

TEST(Mutex, AWaitMayEndInVain) {
    Counter counter;
    EXPECT_FALSE(counter.wait_for(1, std::chrono::milliseconds{1}));
    counter.add();
    EXPECT_TRUE(counter.wait_for(1, std::chrono::milliseconds{0}));
}

TEST(Mutex, UnlockedForABlockOnly) {
    Counter counter;
    bool added = false;
    EXPECT_TRUE(counter.without([&] { added = counter.try_add(); }));
    EXPECT_TRUE(added);
    EXPECT_TRUE(counter.without([] { throw std::runtime_error{"an error"}; }));
    EXPECT_EQ(counter.count(), 1);
}

TEST(UniqueLock, MayUnlockAndLockAgain) {
    Mutex mutex;
    UniqueLock lock{mutex};
    EXPECT_TRUE(lock.owns_lock());
    lock.unlock();
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_TRUE(mutex.try_lock());
    UniqueLock const adopted{mutex, std::adopt_lock};
    EXPECT_TRUE(adopted.owns_lock());
}

}  // namespace
}  // namespace rapidsmpf

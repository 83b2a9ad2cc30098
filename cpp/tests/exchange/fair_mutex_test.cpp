// A busy thread and others share a mutex: one has it at a time, and none waits for ever.
#include "exchange/fair_mutex.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::exchange {
namespace {

TEST(FairMutex, OneAtATime) {
    constexpr int others = 3;
    constexpr int times = 200;
    FairMutex mutex;
    int count = 0;     // guarded by mutex
    int finished = 0;  // guarded by mutex
    std::vector<std::thread> threads;
    for (int i = 0; i < others; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < times; ++k) {
                FairLock const lock{mutex};
                EXPECT_TRUE(lock.owns_lock());
                ++count;
            }
            FairLock const lock{mutex};
            ++finished;
        });
    }
    // The busy one never stops before all others have finished.
    for (bool done = false; !done;) {
        mutex.yield_to_waiters();
        MutexLock const lock{mutex};
        done = finished == others;
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(count, others * times);
}

TEST(FairMutex, NobodyIsWaitedForWhenNobodyWaits) {
    FairMutex mutex;
    FairLock const lock{mutex};
    mutex.yield_to_waiters();  // returns, though somebody has the mutex
    EXPECT_TRUE(lock.owns_lock());
}

}  // namespace
}  // namespace rapidsmpf::exchange

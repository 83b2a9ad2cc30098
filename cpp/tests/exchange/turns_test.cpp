// A busy thread and others take turns: each has the mutex by itself, and nobody waits for ever.
#include "exchange/turns.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::exchange {
namespace {

TEST(Turns, OneAtATime) {
    constexpr int others = 3;
    constexpr int times = 200;
    Turns turns;
    std::mutex mutex;
    int count = 0;     // guarded by mutex
    int finished = 0;  // guarded by mutex
    std::vector<std::thread> threads;
    for (int i = 0; i < others; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < times; ++k) {
                auto const lock = turns.take(mutex);
                EXPECT_TRUE(lock.owns_lock());
                ++count;
            }
            auto const lock = turns.take(mutex);
            ++finished;
        });
    }
    // The busy one never stops before all others have had all their turns.
    for (bool done = false; !done;) {
        turns.let_others_in();
        std::lock_guard const lock{mutex};
        done = finished == others;
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(count, others * times);
}

TEST(Turns, NobodyIsWaitedForWhenNobodyWaits) {
    Turns turns;
    std::mutex mutex;
    auto const lock = turns.take(mutex);
    turns.let_others_in();  // returns, though somebody has the mutex
    EXPECT_TRUE(lock.owns_lock());
}

}  // namespace
}  // namespace rapidsmpf::exchange

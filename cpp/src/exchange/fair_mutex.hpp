// A mutex between one busy thread, which locks it again and again, and others, which lock it now and then.
//
// A thread that unlocks a std::mutex and locks it again mostly gets it before a thread that sleeps on it has woken up: a user
// who inserted chunks while the progress thread was busy waited for ten of its rounds instead of one. So the busy thread
// yields to waiting threads before each round.
//
// Threading: lock_fairly() from any thread; lock() and yield_to_waiters() from the busy one, the latter without the mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace rapidsmpf::exchange {

class FairMutex {
  public:
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] Lock lock() { return Lock{mutex_}; }
    // For the other threads.
    [[nodiscard]] Lock lock_fairly() {
        Lock lock{mutex_, std::try_to_lock};
        if (!lock) {
            waiting_.fetch_add(1, std::memory_order_relaxed);
            // A round is short, and waking up is not.
            auto const until = Clock::now() + short_wait;
            while (!lock.try_lock()) {
                if (Clock::now() >= until) {
                    lock.lock();
                    break;
                }
                std::this_thread::yield();
            }
            waiting_.fetch_sub(1, std::memory_order_relaxed);
        }
        return lock;
    }

    // Waits a moment if other threads wait for the mutex.
    void yield_to_waiters() const {
        if (waiting_.load(std::memory_order_relaxed) == 0) {
            return;
        }
        auto const until = Clock::now() + long_enough;
        do {
            std::this_thread::yield();
        } while (waiting_.load(std::memory_order_relaxed) > 0 && Clock::now() < until);
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::microseconds short_wait{100};
    static constexpr std::chrono::microseconds long_enough{50};

    std::mutex mutex_;
    std::atomic<int> waiting_{0};
};

}  // namespace rapidsmpf::exchange

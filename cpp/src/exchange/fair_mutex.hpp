// A mutex between one busy thread, which locks it again and again, and others, which lock it now and then.
//
// A thread that unlocks a mutex and locks it again mostly gets it before a thread that sleeps on it has woken up: a user
// who inserted chunks while the progress thread was busy waited for ten of its rounds instead of one. So the busy thread
// yields to waiting threads before each round.
//
// Threading: FairLock on any thread; MutexLock, UniqueLock and yield_to_waiters() on the busy one, the latter without the
// mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::exchange {

class FairMutex : public Mutex {
  public:
    // For the other threads. The analysis does not follow a lock that is tried in a loop.
    void lock_fairly() RAPIDSMPF_ACQUIRE() RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS {
        if (try_lock()) {
            return;
        }
        waiting_.fetch_add(1, std::memory_order_relaxed);
        // A round is short, and waking up is not.
        auto const until = Clock::now() + short_wait;
        while (!try_lock()) {
            if (Clock::now() >= until) {
                lock();
                break;
            }
            std::this_thread::yield();
        }
        waiting_.fetch_sub(1, std::memory_order_relaxed);
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

    std::atomic<int> waiting_{0};
};

// A UniqueLock of the other threads.
class RAPIDSMPF_SCOPED_CAPABILITY FairLock : public UniqueLock {
  public:
    explicit FairLock(FairMutex& mutex) RAPIDSMPF_ACQUIRE(mutex)
        : UniqueLock{locked(mutex), std::adopt_lock} {}
    ~FairLock() RAPIDSMPF_RELEASE() = default;
    FairLock(FairLock const&) = delete;
    FairLock& operator=(FairLock const&) = delete;

  private:
    static FairMutex& locked(FairMutex& mutex) RAPIDSMPF_ACQUIRE(mutex) RAPIDSMPF_RETURN_CAPABILITY(mutex) {
        mutex.lock_fairly();
        return mutex;
    }
};

}  // namespace rapidsmpf::exchange

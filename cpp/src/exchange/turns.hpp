// A mutex between one thread that takes it again and again, and others that want it now and then.
//
// Whoever unlocks a std::mutex and locks it again mostly gets it before one that sleeps on it has woken up: a user who inserts
// chunks while the progress thread is busy waited for ten of its rounds and not for one. So that thread says before each
// round that others may go first.
//
// Threading: take() from any thread; let_others_in() from the busy one, without the mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace rapidsmpf::exchange {

class Turns {
  public:
    // For the others.
    [[nodiscard]] std::unique_lock<std::mutex> take(std::mutex& mutex) {
        std::unique_lock lock{mutex, std::try_to_lock};
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

    // Waits a moment if there are others.
    void let_others_in() const {
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

}  // namespace rapidsmpf::exchange

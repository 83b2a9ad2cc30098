// Whether an actor that runs elsewhere, in another language, can go on by itself: for the network, which fails when all its actors
// wait for each other.
//
// Its runner tells of its operations on channels. A thread that blocks in one waits for it and for nothing else. Of an event loop
// that is known only when it has looked at its tasks. Shared by the runner and the actor's account; all methods are thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace rapidsmpf::streaming {
class Activity;
}

namespace rapidsmpf::streaming::detail {

class OutsideProgress {
  public:
    // The actor runs in an event loop. Otherwise it is a function, which waits when its thread does.
    void set_in_loop() noexcept { in_loop_ = true; }
    // A thread that can do nothing else begins, and ends, to wait for a channel. It ends when the wait is over, not when
    // the thread goes on.
    void block() noexcept {
        ++steps_;
        ++blocked_;
    }
    void unblock() noexcept { --blocked_; }

    // An event loop begins to wait for a channel; that has ended, or was given up.
    void begin() noexcept { ++begun_; }
    void end() noexcept { ++ended_; }
    // The loop, on its thread: all tasks of the actor wait, for so many operations of the actor, or for each other.
    void found_waiting(std::uint64_t operations) noexcept {
        found_begun_ = begun_.load();
        found_ = operations;
    }

    // Whether it can go on only if an operation on a channel ends.
    [[nodiscard]] bool waits() const noexcept {
        if (!in_loop_.load()) {
            return blocked_.load() > 0;
        }
        auto const found = found_.load();
        auto const begun = begun_.load();
        return found > 0 && begun == found_begun_.load() && begun - ended_.load() == found;
    }
    // How often it has begun to wait.
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_.load() + begun_.load(); }

  private:
    std::atomic<bool> in_loop_{false};
    std::atomic<std::uint64_t> steps_{0};
    std::atomic<std::uint64_t> blocked_{0};
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> ended_{0};
    std::atomic<std::uint64_t> found_{0};
    std::atomic<std::uint64_t> found_begun_{0};
};

// An account for an actor that runs elsewhere.
[[nodiscard]] std::shared_ptr<Activity> make_outside_activity(std::shared_ptr<OutsideProgress> progress);

}  // namespace rapidsmpf::streaming::detail

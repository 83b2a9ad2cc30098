// What an actor of a network has done: its name in the accounts of channels, and what it waited for besides them.
//
// The network and its actors share it; the promises of an actor's tasks lead to it (task.hpp), so that whatever suspends one
// of them knows for whom. Messages, rows, bytes and waits for channels are counted by the channels, under their locks, by id.
//
// Times are measured by a clock that ticks every few milliseconds and costs next to nothing. A wait that is shorter counts
// as a whole tick or as nothing, as often as it has to for the sum to be right.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/network.hpp>

namespace rapidsmpf::streaming {

// Nanoseconds, in ticks.
[[nodiscard]] std::int64_t coarse_now() noexcept;

// Waits that have ended and those that have not; under its owner's lock.
class WaitSum {
  public:
    void begin(std::int64_t now) noexcept {
        ++waiting_;
        begun_ += static_cast<std::uint64_t>(now);
    }
    void end(std::int64_t begun, std::int64_t now) noexcept {
        --waiting_;
        begun_ -= static_cast<std::uint64_t>(begun);
        total_ += static_cast<std::uint64_t>(now - begun);
    }
    [[nodiscard]] std::int64_t until(std::int64_t now) const noexcept {
        return static_cast<std::int64_t>(total_ + waiting_ * static_cast<std::uint64_t>(now) - begun_);
    }
    [[nodiscard]] bool any() const noexcept { return waiting_ > 0; }

  private:
    // Unsigned: the sum of the start times of many waits may wrap around, and their difference is right all the same.
    std::uint64_t total_{0};
    std::uint64_t waiting_{0};
    std::uint64_t begun_{0};  // sum of the start times of what is under way
};

class Activity {
  public:
    // What is waited for besides channels.
    enum class Wait : std::uint8_t { memory, ranks };

    Activity() noexcept;
    Activity(Activity const&) = delete;
    Activity& operator=(Activity const&) = delete;

    // Of this process, never zero, never used again.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    // Its actor begins, and ends.
    void begin(std::shared_ptr<NetworkTrace> trace);
    void end();
    // So many more of its tasks run beside each other.
    void add_parts(std::ptrdiff_t parts);

    // A wait begins; returns when, for its end.
    [[nodiscard]] std::int64_t begin_wait(Wait wait);
    // `begun_exactly` is when it began by exact_now(), if it is traced.
    void end_wait(Wait wait, std::int64_t begun, std::int64_t begun_exactly);
    [[nodiscard]] bool is_traced() const noexcept { return traced_.load(std::memory_order_relaxed); }

    struct Times {
        std::int64_t alive;  // from its beginning to its end or now, as often as parts of it ran
        std::int64_t for_memory;
        std::int64_t for_ranks;
        bool waits_for_memory;
        bool waits_for_ranks;
    };
    [[nodiscard]] Times times() const;

  private:
    // Brings alive_ up to now.
    void count_parts() RAPIDSMPF_REQUIRES(mutex_);

    std::uint64_t const id_;
    std::atomic<bool> traced_{false};
    mutable Mutex mutex_;
    std::shared_ptr<NetworkTrace> trace_ RAPIDSMPF_GUARDED_BY(mutex_);
    WaitSum for_memory_ RAPIDSMPF_GUARDED_BY(mutex_);
    WaitSum for_ranks_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::int64_t alive_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::int64_t counted_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // up to when
    std::ptrdiff_t parts_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

// A wait of a coroutine's actor, in its awaiter. Nothing happens without an actor.
class ActivityWait {
  public:
    ActivityWait() noexcept = default;
    ActivityWait(ActivityWait const&) = delete;
    ActivityWait& operator=(ActivityWait const&) = delete;
    ~ActivityWait() { end(); }
    void begin(Activity* activity, Activity::Wait wait);
    // Once, at most.
    void end();

  private:
    Activity* activity_{nullptr};
    Activity::Wait wait_{};
    std::int64_t begun_{0};
    std::int64_t begun_exactly_{0};
};

}  // namespace rapidsmpf::streaming

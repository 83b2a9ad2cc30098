// What an actor of a network has done: its name in the accounts of channels, and what it waited for besides them.
//
// The network and its actors share it; the promises of an actor's tasks lead to it (task.hpp), so that whatever suspends one
// of them knows for whom. Messages, rows, bytes and waits for channels are counted by the channels, under their locks, by id.
//
// Of an actor that runs elsewhere, in another language, the account also says whether it waits (detail/outside_progress.hpp).
//
// Times are measured by a clock that ticks every few milliseconds and costs next to nothing. A wait that is shorter counts
// as a whole tick or as nothing, as often as it has to for the sum to be right.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/detail/outside_progress.hpp>
#include <rapidsmpf/streaming/network.hpp>
#include <rapidsmpf/streaming/task.hpp>

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
    using Wait = detail::WaitKind;

    // `progress` is that of an actor that runs elsewhere; null for others.
    explicit Activity(std::shared_ptr<detail::OutsideProgress> progress) noexcept;
    Activity(Activity const&) = delete;
    Activity& operator=(Activity const&) = delete;

    // Of this process, never zero, never used again.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    // Its actor begins, and ends.
    void begin(std::shared_ptr<NetworkTrace> trace);
    void end();
    // So many more of its tasks run beside each other.
    void add_parts(std::ptrdiff_t parts);

    using Cancel = std::function<void(std::exception_ptr)>;
    // What begin_wait() returns for the end of the wait.
    struct Begun {
        std::exception_ptr error;  // of the network, which has failed: there is no wait
        std::int64_t when{0};
        std::uint64_t id{0};
    };
    [[nodiscard]] Begun begin_wait(Wait wait, Cancel cancel);
    // `begun_exactly` is when it began by exact_now(), if it is traced.
    void end_wait(Wait wait, std::int64_t begun, std::uint64_t id, std::int64_t begun_exactly);
    // The network has failed: ends the waits, those to come too. Not of actors that run elsewhere, who are told otherwise.
    void cancel_waits(std::exception_ptr const& error);
    // Null for actors of the executor.
    [[nodiscard]] detail::OutsideProgress const* progress() const noexcept { return progress_.get(); }
    [[nodiscard]] bool is_traced() const noexcept { return traced_.load(std::memory_order_relaxed); }

    struct Times {
        std::int64_t alive;  // from its beginning to its end or now, as often as parts of it ran
        std::int64_t for_memory;
        std::int64_t for_ranks;
        std::int64_t for_others;  // all else
    };
    [[nodiscard]] Times times() const;
    // What it waits for now, besides channels, in words; empty: for nothing.
    [[nodiscard]] std::string waits() const;

  private:
    // Brings alive_ up to now.
    void count_parts() RAPIDSMPF_REQUIRES(mutex_);

    static constexpr std::size_t kinds = 7;

    std::uint64_t const id_;
    std::shared_ptr<detail::OutsideProgress> const progress_;
    std::atomic<bool> traced_{false};
    mutable Mutex mutex_;
    std::shared_ptr<NetworkTrace> trace_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::array<WaitSum, kinds> waits_ RAPIDSMPF_GUARDED_BY(mutex_);  // by kind
    std::map<std::uint64_t, Cancel> cancels_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t last_wait_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::int64_t alive_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::int64_t counted_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // up to when
    std::ptrdiff_t parts_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace rapidsmpf::streaming

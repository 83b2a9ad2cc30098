// Named statistics (count, sum, maximum) that operations update and users read.
//
// Names become numeric ids once: those of the library when it is compiled (statistic_names.hpp), a user's own
// by id(). Adding to an id takes no lock and builds no string. The values are kept in shards; a thread always
// uses the same shard, and threads share one only when there are more threads than shards, so updates of
// different threads do not wait for each other's cache lines. Reading sums up the shards. Disabled statistics
// cost one branch, and their timers do not read the clock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/core/statistic_names.hpp>
#include <rapidsmpf/core/statistics_snapshot.hpp>

namespace rapidsmpf {

class Statistics {
  public:
    using Unit = StatisticUnit;
    using Kind = StatisticKind;
    using Stat = StatisticValue;
    using Id = StatisticId;

    enum class Enabled : bool { no = false, yes = true };

    explicit Statistics(Enabled enabled = Enabled::yes);
    Statistics(Statistics const&) = delete;
    Statistics& operator=(Statistics const&) = delete;

    [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

    // The id of `name` in this object, made on first use; unit and kind of a name that is there already stay
    // what they are. Throws std::length_error when there are max_stats names.
    [[nodiscard]] Id id(std::string_view name, Unit unit = Unit::none, Kind kind = Kind::sum);

    // Adds `value` to a statistic.
    void add(Id id, double value) noexcept {
        if (enabled()) {
            add_enabled(id, value);
        }
    }
    void add(std::string_view name, double value, Unit unit = Unit::none, Kind kind = Kind::sum) {
        if (enabled()) {
            add_enabled(id(name, unit, kind), value);
        }
    }

    // Throws std::out_of_range when there is no such statistic or nothing was added to it.
    [[nodiscard]] Stat get(std::string_view name) const;
    // The names that hold at least one value, sorted.
    [[nodiscard]] std::vector<std::string> names() const;
    // Forgets all values. What other threads add meanwhile is kept or forgotten, each value by itself.
    void clear() noexcept;

    // The values now, by name: what can be sent, merged, and printed.
    [[nodiscard]] StatisticsSnapshot snapshot() const;
    // Adds the values of others, as if their additions had been made here; nothing when disabled.
    void merge(StatisticsSnapshot const& others);

    // A table for people, and JSON; see StatisticsSnapshot.
    [[nodiscard]] std::string report(std::string_view header = "Statistics:") const;
    [[nodiscard]] std::string to_json() const { return snapshot().to_json(); }

    static constexpr std::size_t max_stats = StatisticsSnapshot::max_stats;

  private:
    struct Slot {
        std::atomic<std::uint64_t> count{0};
        std::atomic<double> value{0};
        std::atomic<double> max{-std::numeric_limits<double>::infinity()};
    };
    using Shard = std::array<Slot, max_stats>;
    static constexpr std::size_t num_shards = 16;

    struct Own {
        std::string name;
        Unit unit;
        Kind kind;
    };

    void add_enabled(Id id, double value) noexcept;
    [[nodiscard]] Shard& own_shard() noexcept;
    [[nodiscard]] Shard& make_shard(std::size_t index) noexcept;
    [[nodiscard]] Stat sum_up(Id id, Kind kind) const noexcept;
    [[nodiscard]] std::optional<Id> find_locked(std::string_view name) const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Kind kind_locked(Id id) const RAPIDSMPF_REQUIRES(mutex_);

    std::atomic<bool> enabled_;
    // Made when a thread first needs one; the first is there from the start.
    std::array<std::atomic<Shard*>, num_shards> shards_{};
    std::array<std::unique_ptr<Shard>, num_shards> storage_ RAPIDSMPF_GUARDED_BY(mutex_);
    mutable Mutex mutex_;
    std::map<std::string, Id, std::less<>> own_ids_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<Own> own_ RAPIDSMPF_GUARDED_BY(mutex_);  // users' names; their ids follow those of the table
};

// Adds the seconds between construction and destruction to a statistic.
template <typename Clock>
class BasicScopedTimer {
  public:
    BasicScopedTimer(Statistics& statistics, Statistics::Id id) noexcept
        : statistics_{statistics.enabled() ? &statistics : nullptr}, id_{id} {
        if (statistics_ != nullptr) {
            start_ = Clock::now();
        }
    }
    ~BasicScopedTimer() {
        if (statistics_ != nullptr) {
            statistics_->add(id_, std::chrono::duration<double>(Clock::now() - start_).count());
        }
    }
    BasicScopedTimer(BasicScopedTimer const&) = delete;
    BasicScopedTimer& operator=(BasicScopedTimer const&) = delete;

  private:
    Statistics* statistics_;  // null: disabled when it began
    Statistics::Id id_;
    typename Clock::time_point start_{};
};

using ScopedTimer = BasicScopedTimer<std::chrono::steady_clock>;

}  // namespace rapidsmpf

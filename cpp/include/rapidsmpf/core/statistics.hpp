// Named counters (count, sum, maximum) that operations update and users read.
//
// Handles are numeric: an operation asks once for the id of a name and then adds to it without a lock or a
// string. A disabled object costs one branch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace rapidsmpf {

class Statistics {
  public:
    // How report() prints a value.
    enum class Unit : std::uint8_t { none, bytes, seconds };

    struct Stat {
        std::uint64_t count{0};
        double value{0};
        double max{0};
    };

    // Refers to one named statistic of one Statistics object; valid as long as that object.
    using Id = std::uint32_t;

    enum class Enabled : bool { no = false, yes = true };

    explicit Statistics(Enabled enabled = Enabled::yes);
    Statistics(Statistics const&) = delete;
    Statistics& operator=(Statistics const&) = delete;

    [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
    void set_enabled(Enabled enabled) noexcept { enabled_ = enabled == Enabled::yes; }

    // The id of `name`, made on first use. At most max_stats names.
    [[nodiscard]] Id id(std::string_view name, Unit unit = Unit::none);

    // Adds `value` to a statistic.
    void add(Id id, double value) noexcept {
        if (enabled()) {
            add_enabled(id, value);
        }
    }
    void add(std::string_view name, double value, Unit unit = Unit::none);

    // Throws std::out_of_range when there is no such statistic or nothing was added to it.
    [[nodiscard]] Stat get(std::string_view name) const;
    // The names that hold at least one value, sorted.
    [[nodiscard]] std::vector<std::string> names() const;
    void clear();

    // A table for people.
    [[nodiscard]] std::string report(std::string_view header = "Statistics:") const;
    // {"statistics": {name: {"count":, "value":, "max":}}}. Throws std::invalid_argument when a name has a
    // character that JSON would have to escape.
    [[nodiscard]] std::string to_json() const;

    static constexpr std::size_t max_stats = 512;

  private:
    struct Slot {
        std::atomic<std::uint64_t> count{0};
        std::atomic<double> value{0};
        std::atomic<double> max{0};
    };
    void add_enabled(Id id, double value) noexcept;

    std::atomic<bool> enabled_;
    std::unique_ptr<std::array<Slot, max_stats>> slots_;
    mutable std::mutex mutex_;  // guards the registry, not the slots
    std::map<std::string, Id, std::less<>> ids_;
    std::vector<Unit> units_;
};

// Adds the seconds between construction and destruction to a statistic.
class ScopedTimer {
  public:
    ScopedTimer(Statistics& statistics, Statistics::Id id) noexcept;
    ~ScopedTimer();
    ScopedTimer(ScopedTimer const&) = delete;
    ScopedTimer& operator=(ScopedTimer const&) = delete;

  private:
    Statistics& statistics_;
    Statistics::Id id_;
    std::int64_t start_ns_;
};

}  // namespace rapidsmpf

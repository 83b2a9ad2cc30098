// The values of statistics at one time, by name: an ordinary value that can be sent to another rank, merged
// with those of other ranks, and written for people or as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/core/statistic_names.hpp>

namespace rapidsmpf {

struct StatisticValue {
    std::uint64_t count{0};  // how many values were added
    double value{0};         // their sum; of a peak, the largest
    double max{0};           // the largest
};

class StatisticsSnapshot {
  public:
    struct Entry {
        StatisticValue stat;
        StatisticUnit unit{StatisticUnit::none};
        StatisticKind kind{StatisticKind::sum};
    };
    using Entries = std::map<std::string, Entry, std::less<>>;

    // What one Statistics object can hold.
    static constexpr std::size_t max_stats = 512;
    static constexpr std::size_t longest_name = 1024;

    [[nodiscard]] Entries const& entries() const& noexcept { return entries_; }
    // Of a temporary: so that a loop over them is safe.
    [[nodiscard]] Entries entries() && { return std::move(entries_); }
    // Adds to the statistic of that name. One that is there keeps its unit and kind.
    void add(std::string const& name, Entry const& entry);
    // Adds all of another one: counts and sums are added, maxima and peaks are compared.
    void merge(StatisticsSnapshot const& other);

    // Binary form for other processes: magic, version, flags, the entries, CRC-32.
    // Throws std::invalid_argument when a name is longer than longest_name or there are more than max_stats.
    [[nodiscard]] std::vector<std::uint8_t> serialize() const;
    // Throws FormatError on any malformed input.
    [[nodiscard]] static StatisticsSnapshot deserialize(std::span<std::uint8_t const> bytes);

    // " - name:   text" for each statistic, sorted by name: sum, average and largest in its unit; bytes whose time
    // is known with their bandwidth.
    [[nodiscard]] std::string report(std::string_view header) const;
    // {"statistics": {name: {"count":, "value":, "max":}}}; `more` is a further member (`"name": value`) of the
    // outer object, or empty. Numbers that JSON does not have are null. Throws std::invalid_argument when a
    // name has a character that JSON would have to escape.
    [[nodiscard]] std::string to_json(std::string_view more = {}) const;
    // Throws std::invalid_argument as to_json(); `what` is what has the name, for the error.
    static void check_json_name(std::string_view name, std::string_view what);

  private:
    Entries entries_;
};

}  // namespace rapidsmpf

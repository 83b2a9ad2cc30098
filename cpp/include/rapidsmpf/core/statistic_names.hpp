// The registry of statistics: one table of what the library records, from which docs/statistics.md is written.
//
// The table is a constant: the id of a name in it is its row, known when the program is compiled and the same
// in every Statistics object. So recording needs no look-up:
//
//     statistics->add(statistic::id("shuffle-payload-send"), bytes);     // a misspelt name does not compile
//     statistics->add(statistic::copy_bytes(from, to), bytes);           // by pair of tiers
//
// Users may add statistics of their own beside these (Statistics::id()).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace rapidsmpf {

// Refers to one named statistic of a Statistics object.
using StatisticId = std::uint32_t;

// How a value is printed.
enum class StatisticUnit : std::uint8_t { none = 0, bytes = 1, seconds = 2 };

// What the value of a statistic is, and how those of several ranks become one.
enum class StatisticKind : std::uint8_t {
    sum = 0,   // the sum of what was added; ranks: the sum
    peak = 1,  // the largest that was added; ranks: the largest
};

namespace statistic {

// Text of bounded size that can be built at compile time.
class Text {
  public:
    static constexpr std::size_t capacity = 48;

    constexpr Text() = default;
    constexpr Text(char const* text) { append(text); }  // NOLINT: a literal is a text
    constexpr explicit Text(std::string_view text) { append(text); }
    constexpr Text& append(std::string_view text) {
        if (size_ + text.size() > capacity) {
            throw std::length_error{"a statistic's name is too long"};
        }
        for (char const c : text) {
            chars_[size_++] = c;
        }
        return *this;
    }
    [[nodiscard]] constexpr std::string_view view() const { return {chars_.data(), size_}; }

  private:
    std::array<char, capacity> chars_{};
    std::size_t size_{0};
};

struct Info {
    Text name;
    StatisticUnit unit{StatisticUnit::none};
    StatisticKind kind{StatisticKind::sum};
    // The statistic with the time that these bytes took, or empty: report() divides one by the other.
    Text seconds;
    // Where it is recorded, and what it says: for docs/statistics.md.
    std::string_view recorded;
    std::string_view meaning;
};

// The tiers as they are called in names; in the order of MemoryType.
inline constexpr std::array<std::string_view, 4> tiers{"device", "pinned-host", "host", "disk"};

namespace detail {

constexpr std::size_t num_tiers = tiers.size();
constexpr std::size_t num_spills = num_tiers * (num_tiers - 1);
constexpr std::size_t num_copies = num_tiers * num_tiers;

constexpr Text of_pair(
    std::string_view before, std::size_t from, std::size_t to, std::string_view after = {}) {
    return Text{before}.append(tiers[from]).append("-to-").append(tiers[to]).append(after);
}

inline constexpr auto others = [] {
    using enum StatisticUnit;
    using enum StatisticKind;
    constexpr std::string_view spilling = "spilling";
    constexpr std::string_view memory = "buffer resource";
    constexpr std::string_view disk = "spill files";
    constexpr std::string_view loop = "collectives, each round of an operation on the progress thread";
    constexpr std::string_view collective = "collectives";
    // clang-format off: a table reads by rows
    return std::to_array<Info>({
        {"spill-bytes-recv-to-host", bytes, sum, {}, collective,
         "Bytes that came from another rank straight into host memory, because there was no room in device "
         "memory."},
        {"reservation-wait-time", seconds, sum, {}, memory,
         "Time that requests for memory waited until they were served."},
        {"reservation-timeouts", none, sum, {}, memory,
         "Requests for memory whose time was up before there was room."},
        {"reservation-overbooked-bytes", bytes, peak, {}, memory,
         "The most bytes by which a granted reservation left a tier above its limit."},
        {"spill-freed-bytes", bytes, sum, {}, spilling, "Bytes that spilling freed when memory was short."},
        {"spill-shortfall-bytes", bytes, peak, {}, spilling,
         "The most bytes that were short and that spilling could not free, because nothing was left to spill."},
        {"memory-peak-device", bytes, peak, {}, memory,
         "The most bytes in buffers of device memory at a time."},
        {"memory-peak-pinned-host", bytes, peak, {}, memory,
         "The most bytes in buffers of page-locked host memory at a time."},
        {"memory-peak-host", bytes, peak, {}, memory, "The most bytes in buffers of host memory at a time."},
        {"memory-peak-disk", bytes, peak, {}, memory, "The most bytes in buffers on disk at a time."},
        {"disk-write-bytes", bytes, sum, "disk-write-seconds", disk, "Bytes written to spill files."},
        {"disk-write-seconds", seconds, sum, {}, disk, "Time that writing to spill files took."},
        {"disk-read-bytes", bytes, sum, "disk-read-seconds", disk, "Bytes read from spill files."},
        {"disk-read-seconds", seconds, sum, {}, disk, "Time that reading from spill files took."},
        {"disk-bytes-used", bytes, peak, {}, disk, "The most bytes that the spill files held at a time."},
        {"shuffle-payload-send", bytes, sum, {}, collective,
         "Bytes that this rank inserted into shuffles, for itself included."},
        {"shuffle-payload-recv", bytes, sum, {}, collective,
         "Bytes of shuffles that came to this rank, from itself included."},
        {"allgather-payload-send", bytes, sum, {}, collective,
         "Bytes that this rank inserted into all-gathers, once for each rank, itself included."},
        {"allgather-payload-recv", bytes, sum, {}, collective,
         "Bytes of all-gathers that came to this rank, from itself included."},
        {"allreduce-payload-send", bytes, sum, {}, collective,
         "Bytes that this rank inserted into all-reductions, for itself included."},
        {"allreduce-payload-recv", bytes, sum, {}, collective,
         "Bytes of all-reductions that came to this rank, from itself included."},
        {"broadcast-payload-send", bytes, sum, {}, collective,
         "Bytes that this rank inserted into broadcasts, for itself included."},
        {"broadcast-payload-recv", bytes, sum, {}, collective,
         "Bytes of broadcasts that came to this rank, from itself included."},
        {"sparse-alltoall-payload-send", bytes, sum, {}, collective,
         "Bytes that this rank inserted into sparse all-to-alls, for itself included."},
        {"sparse-alltoall-payload-recv", bytes, sum, {}, collective,
         "Bytes of sparse all-to-alls that came to this rank, from itself included."},
        {"exchange-control-bytes", bytes, sum, {}, collective,
         "Bytes of control messages to other ranks: announcements, grants, and the small chunks that travel "
         "in them."},
        {"exchange-message-bytes", bytes, sum, {}, collective,
         "Bytes of payload sent to other ranks as messages, the small chunks in control messages aside."},
        {"exchange-peer-memory-bytes", bytes, sum, "exchange-peer-memory-time", collective,
         "Bytes of payload written straight into the memory of other ranks."},
        {"exchange-peer-memory-time", seconds, sum, {}, collective, "Time that writing them took."},
        {"exchange-grant-wait-time", seconds, sum, {}, collective,
         "Time that announced frames waited until this rank had set memory aside to receive them."},
        {"event-loop-total", seconds, sum, {}, loop, "The whole round."},
        {"event-loop-metadata-send", seconds, sum, {}, loop, "Writing and sending control messages."},
        {"event-loop-metadata-recv", seconds, sum, {}, loop,
         "Reading control messages of other ranks, for each message."},
        {"event-loop-post-incoming-chunk-recv", seconds, sum, {}, loop,
         "Allocating memory for frames of other ranks, posting their receives and granting them."},
        {"event-loop-init-gpu-data-send", seconds, sum, {}, loop,
         "Gathering what was granted and starting to send it, from whatever memory it is in, a GPU's or the host's; "
         "not the transfer itself."},
        {"event-loop-check-future-finish", seconds, sum, {}, loop,
         "Looking whether sends and receives have ended."},
        {"progress-thread-round", seconds, sum, {}, "progress thread",
         "A round of the progress thread over all that it drives, in the statistics that it was given."},
    });
    // clang-format on
}();

inline constexpr auto table = [] {
    std::array<Info, 2 * num_spills + 2 * num_copies + others.size()> rows{};
    std::size_t row = 0;
    for (std::size_t from = 0; from < num_tiers; ++from) {
        for (std::size_t to = 0; to < num_tiers; ++to) {
            if (from == to) {
                continue;
            }
            bool const down = from < to;
            auto const seconds = of_pair("spill-time-", from, to);
            rows[row++] = {
                of_pair("spill-bytes-", from, to),
                StatisticUnit::bytes,
                StatisticKind::sum,
                seconds,
                "spilling",
                down ? "Bytes moved down by spilling." : "Bytes moved up again (unspilling)."};
            rows[row++] = {
                seconds,
                StatisticUnit::seconds,
                StatisticKind::sum,
                {},
                "spilling",
                down ? "Time that moving them took." : "Time that moving them up took."};
        }
    }
    for (std::size_t from = 0; from < num_tiers; ++from) {
        for (std::size_t to = 0; to < num_tiers; ++to) {
            auto const seconds = of_pair("copy-", from, to, "-time");
            rows[row++] = {
                of_pair("copy-", from, to, "-bytes"),
                StatisticUnit::bytes,
                StatisticKind::sum,
                seconds,
                "buffer resource",
                "Bytes copied between buffers, spilling included."};
            rows[row++] = {seconds, StatisticUnit::seconds, StatisticKind::sum,
                           {},      "buffer resource",      "Time that copying them took."};
        }
    }
    for (auto const& info : others) {
        rows[row++] = info;
    }
    return rows;
}();

constexpr std::size_t spill_row(std::size_t from, std::size_t to) {
    return 2 * (from * (num_tiers - 1) + to - (to > from ? 1 : 0));
}
constexpr std::size_t copy_row(std::size_t from, std::size_t to) {
    return 2 * (num_spills + from * num_tiers + to);
}

template <typename T>
concept Tier = std::is_enum_v<T> || std::integral<T>;

constexpr std::size_t tier_index(Tier auto tier) {
    return static_cast<std::size_t>(tier);
}

}  // namespace detail

// All rows; the row of a statistic is its id.
inline constexpr auto const& table = detail::table;

// The id of a name of the table; does not compile when there is no such name.
consteval StatisticId id(std::string_view name) {
    for (std::size_t row = 0; row < table.size(); ++row) {
        if (table[row].name.view() == name) {
            return static_cast<StatisticId>(row);
        }
    }
    throw std::invalid_argument{"no statistic of that name is in the table"};
}

// Of moving spillable data from a tier to another one, by MemoryType. The two must differ.
constexpr StatisticId spill_bytes(detail::Tier auto from, detail::Tier auto to) {
    return static_cast<StatisticId>(detail::spill_row(detail::tier_index(from), detail::tier_index(to)));
}
constexpr StatisticId spill_time(detail::Tier auto from, detail::Tier auto to) {
    return spill_bytes(from, to) + 1;
}
// Of any copy from a buffer to another one, by MemoryType.
constexpr StatisticId copy_bytes(detail::Tier auto from, detail::Tier auto to) {
    return static_cast<StatisticId>(detail::copy_row(detail::tier_index(from), detail::tier_index(to)));
}
constexpr StatisticId copy_time(detail::Tier auto from, detail::Tier auto to) {
    return copy_bytes(from, to) + 1;
}
// The most bytes in a tier at a time, by MemoryType.
constexpr StatisticId memory_peak(detail::Tier auto tier) {
    return id("memory-peak-device") + static_cast<StatisticId>(detail::tier_index(tier));
}

static_assert(table[spill_bytes(0, 2)].name.view() == "spill-bytes-device-to-host");
static_assert(table[spill_time(2, 0)].name.view() == "spill-time-host-to-device");
static_assert(table[spill_time(3, 2)].name.view() == "spill-time-disk-to-host");
static_assert(table[copy_bytes(1, 3)].name.view() == "copy-pinned-host-to-disk-bytes");
static_assert(table[copy_time(3, 3)].name.view() == "copy-disk-to-disk-time");
static_assert(table[memory_peak(3)].name.view() == "memory-peak-disk");

}  // namespace statistic
}  // namespace rapidsmpf

// Which ranges of a block of memory are free: taken by best fit, joined with their neighbours when they come back.
//
// Pure bookkeeping, not thread-safe; its owner has the lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace rapidsmpf::device::detail {

class Extents {
  public:
    struct Range {
        std::uint64_t begin{0};
        std::uint64_t end{0};
    };

    // Takes `length` bytes from the front of the smallest range that holds them; returns where.
    [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t length) {
        auto const found = by_length_.lower_bound({length, 0});
        if (found == by_length_.end()) {
            return std::nullopt;
        }
        auto const [have, begin] = *found;
        by_length_.erase(found);
        by_begin_.erase(begin);
        if (have > length) {
            add({begin + length, begin + have});
        }
        return begin;
    }

    // Adds a range; returns the free range that it is part of now.
    Range insert(Range range) {
        if (auto next = by_begin_.find(range.end); next != by_begin_.end()) {
            range.end = next->second;
            remove(next);
        }
        if (auto after = by_begin_.lower_bound(range.begin); after != by_begin_.begin()) {
            auto const before = std::prev(after);
            if (before->second == range.begin) {
                range.begin = before->first;
                remove(before);
            }
        }
        add(range);
        return range;
    }

    [[nodiscard]] std::size_t count() const noexcept { return by_begin_.size(); }

  private:
    void add(Range range) {
        by_begin_.emplace(range.begin, range.end);
        by_length_.emplace(range.end - range.begin, range.begin);
    }
    void remove(std::map<std::uint64_t, std::uint64_t>::iterator entry) {
        by_length_.erase({entry->second - entry->first, entry->first});
        by_begin_.erase(entry);
    }

    std::map<std::uint64_t, std::uint64_t> by_begin_;              // begin -> end
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_length_;  // length, begin
};

}  // namespace rapidsmpf::device::detail

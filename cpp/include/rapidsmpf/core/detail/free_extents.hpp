// Which ranges of a file or of a block of memory are free: taken by best fit, joined with their neighbours when they come
// back.
//
// Pure bookkeeping, not thread-safe; its owner has the lock.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace rapidsmpf {

template <std::integral Number>
class FreeExtents {
  public:
    struct Range {
        Number offset{0};
        Number length{0};
        [[nodiscard]] Number end() const noexcept { return offset + length; }
        friend bool operator==(Range const&, Range const&) = default;
    };

    // Adds a range that overlaps none that is free; returns the free range that it is part of now.
    Range insert(Range range) {
        if (range.length == 0) {
            return range;
        }
        auto next = by_offset_.lower_bound(range.offset);
        if (next != by_offset_.end() && next->first == range.end()) {
            auto const following = std::next(next);
            range.length += remove(next).length;
            next = following;
        }
        if (next != by_offset_.begin()) {
            auto const previous = std::prev(next);
            if (previous->first + previous->second == range.offset) {
                auto const before = remove(previous);
                range = {before.offset, before.length + range.length};
            }
        }
        add(range);
        return range;
    }

    // Takes `length` from the front of the smallest range that holds it.
    [[nodiscard]] std::optional<Range> take(Number length) {
        auto const found = by_size_.lower_bound({length, 0});
        if (found == by_size_.end()) {
            return std::nullopt;
        }
        auto const whole = remove(by_offset_.find(found->second));
        if (whole.length > length) {
            add({whole.offset + length, whole.length - length});
        }
        return Range{whole.offset, length};
    }

    // Takes the largest range, whole.
    [[nodiscard]] std::optional<Range> take_largest() {
        if (by_size_.empty()) {
            return std::nullopt;
        }
        return remove(by_offset_.find(by_size_.rbegin()->second));
    }

    // Takes the range that ends at `end`, whole.
    [[nodiscard]] std::optional<Range> take_ending_at(Number end) {
        auto const last = by_offset_.lower_bound(end);
        if (last == by_offset_.begin()) {
            return std::nullopt;
        }
        auto const candidate = std::prev(last);
        if (candidate->first + candidate->second != end) {
            return std::nullopt;
        }
        return remove(candidate);
    }

    [[nodiscard]] Number total() const noexcept { return total_; }
    [[nodiscard]] std::size_t count() const noexcept { return by_offset_.size(); }

  private:
    using ByOffset = std::map<Number, Number>;

    Range remove(typename ByOffset::iterator entry) {
        Range const range{entry->first, entry->second};
        by_size_.erase({range.length, range.offset});
        by_offset_.erase(entry);
        total_ -= range.length;
        return range;
    }
    void add(Range range) {
        by_offset_.emplace(range.offset, range.length);
        by_size_.emplace(range.length, range.offset);
        total_ += range.length;
    }

    ByOffset by_offset_;                           // offset -> length
    std::set<std::pair<Number, Number>> by_size_;  // length, offset
    Number total_{0};
};

}  // namespace rapidsmpf

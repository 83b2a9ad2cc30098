#include "memory/disk/free_extents.hpp"

#include <iterator>

namespace rapidsmpf::detail {

FileRange FreeExtents::remove(ByOffset::iterator entry) {
    FileRange const range{entry->first, entry->second};
    by_size_.erase({range.length, range.offset});
    by_offset_.erase(entry);
    total_ -= range.length;
    return range;
}

void FreeExtents::add(FileRange range) {
    by_offset_.emplace(range.offset, range.length);
    by_size_.emplace(range.length, range.offset);
    total_ += range.length;
}

void FreeExtents::insert(FileRange range) {
    if (range.length == 0) {
        return;
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
}

std::optional<FileRange> FreeExtents::take(std::int64_t length) {
    auto const found = by_size_.lower_bound({length, 0});
    if (found == by_size_.end()) {
        return std::nullopt;
    }
    auto const whole = remove(by_offset_.find(found->second));
    if (whole.length > length) {
        add({whole.offset + length, whole.length - length});
    }
    return FileRange{whole.offset, length};
}

std::optional<FileRange> FreeExtents::take_largest() {
    if (by_size_.empty()) {
        return std::nullopt;
    }
    return remove(by_offset_.find(by_size_.rbegin()->second));
}

std::optional<FileRange> FreeExtents::take_ending_at(std::int64_t end) {
    if (by_offset_.empty()) {
        return std::nullopt;
    }
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

}  // namespace rapidsmpf::detail

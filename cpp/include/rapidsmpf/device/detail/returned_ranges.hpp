// Ranges of memory that came back while work on their stream may still use them.
//
// To return a range costs nothing: whether the work is done is looked up when no other range is left. Then one
// mark in each stream stands for all that came back on it; a mark that is set later than it might be only makes a range free
// later.
//
// Not thread-safe; its owner has the lock.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {

template <typename Range>
class ReturnedRanges {
  public:
    // The device outlives it.
    explicit ReturnedRanges(Device& device) : device_{device} {}

    void put(Stream stream, Range range) { returned_[stream.handle()].unmarked.push_back(std::move(range)); }

    // Calls free(range) for each that no work uses any more.
    template <typename Free>
    void take_back(Free const& free) {
        for (auto& [stream, ranges] : returned_) {
            if (!ranges.marked.empty() && ranges.mark->is_done()) {
                release(ranges.marked, free);
            }
            if (ranges.unmarked.empty() || !ranges.marked.empty()) {
                continue;
            }
            if (!ranges.mark) {
                ranges.mark = device_.make_event();
            }
            ranges.mark->record(Stream{stream});
            if (ranges.mark->is_done()) {
                release(ranges.unmarked, free);
            } else {
                ranges.marked.swap(ranges.unmarked);
            }
        }
    }

    // The same for all of them, and waits.
    template <typename Free>
    void take_all_back(Free const& free) {
        for (auto& [stream, ranges] : returned_) {
            if (!ranges.marked.empty() || !ranges.unmarked.empty()) {
                device_.synchronize(Stream{stream});
            }
            release(ranges.marked, free);
            release(ranges.unmarked, free);
        }
    }

  private:
    struct OfStream {
        std::vector<Range> unmarked;
        std::vector<Range> marked;
        std::unique_ptr<Event> mark;  // behind what is marked
    };

    template <typename Free>
    static void release(std::vector<Range>& ranges, Free const& free) {
        for (auto const& range : ranges) {
            free(range);
        }
        ranges.clear();
    }

    Device& device_;
    std::map<void*, OfStream> returned_;
};

}  // namespace rapidsmpf::device

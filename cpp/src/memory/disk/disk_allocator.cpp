#include "memory/disk/disk_allocator.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

// The file grows by this at least, to be one piece on disk and to ask the file system seldom.
constexpr std::int64_t growth = std::int64_t{128} << 20;

}  // namespace

DiskAllocator::DiskAllocator(DiskFile& file, std::int64_t limit, std::int64_t keep_free)
    : file_{file}, limit_{limit}, keep_free_{keep_free} {}

FileRange DiskAllocator::allocate(std::int64_t length) {
    {
        UniqueLock lock{mutex_};
        if (length > limit_ - used_) {
            auto const used = used_;
            lock.unlock();
            throw SpillError{
                "cannot spill " + config::format_bytes(length) + " to " + file_.describe() + ": "
                + config::format_bytes(used) + " of the limit of " + config::format_bytes(limit_)
                + " are used. Raise spill_disk_limit, or give the query more memory."};
        }
        // Counted at once, so that what others take meanwhile cannot break the limit.
        used_ += length;
        peak_ = std::max(peak_, used_);
        if (auto const range = kept_.take(length)) {
            return *range;
        }
    }
    try {
        return allocate_slowly(length);
    } catch (...) {
        MutexLock lock{mutex_};
        used_ -= length;
        throw;
    }
}

FileRange DiskAllocator::allocate_slowly(std::int64_t length) {
    file_.open();
    MutexLock grow_lock{grow_mutex_};
    {
        MutexLock lock{mutex_};
        if (auto const range = kept_.take(length)) {
            return *range;
        }
    }
    // Free blocks count towards the limit as long as we keep them.
    punch_until([&]() RAPIDSMPF_REQUIRES(mutex_) { return kept_.total() <= limit_ - used_; });
    try {
        return grow(length);
    } catch (SpillError const& error) {
        if (error.error_number() != ENOSPC && error.error_number() != EDQUOT) {
            throw;
        }
    }
    // There may be enough in pieces that we kept.
    punch_until([] { return false; });
    return grow(length);
}

FileRange DiskAllocator::grow(std::int64_t length) {
    FileRange range;
    bool is_hole = false;
    {
        MutexLock lock{mutex_};
        if (auto const hole = holes_.take(length)) {
            range = *hole;
            is_hole = true;
        } else {
            // used_ has `length` in it already.
            auto const spare = std::min({growth, keep_free_ / 2, limit_ - used_ - kept_.total()});
            auto const step = std::max(length, spare / disk_page * disk_page);
            range = {end_, step};
        }
    }
    if (is_hole) {
        try {
            file_.allocate(range);
        } catch (...) {
            static_cast<void>(file_.punch(range));  // what it got before it failed
            MutexLock lock{mutex_};
            holes_.insert(range);
            throw;
        }
        return range;
    }
    for (;;) {
        try {
            file_.allocate(range);
            break;
        } catch (SpillError const&) {
            file_.truncate(range.offset);
            if (range.length == length) {
                throw;
            }
            range.length = length;  // not a large step, then
        }
    }
    MutexLock lock{mutex_};
    end_ = range.end();
    kept_.insert({range.offset + length, range.length - length});
    return {range.offset, length};
}

bool DiskAllocator::free(FileRange range) {
    MutexLock lock{mutex_};
    used_ -= range.length;
    kept_.insert(range);
    if (trimming_ || kept_.total() <= keep_free_) {
        return false;
    }
    trimming_ = true;
    return true;
}

void DiskAllocator::discard(FileRange range) {
    auto const punched = file_.punch(range);
    MutexLock lock{mutex_};
    used_ -= range.length;
    (punched ? holes_ : kept_).insert(range);
}

void DiskAllocator::punch_until(std::function<bool()> const& enough) {
    for (;;) {
        FileRange range;
        {
            MutexLock lock{mutex_};
            if (enough()) {
                return;
            }
            auto const largest = kept_.take_largest();
            if (!largest) {
                return;
            }
            range = *largest;
        }
        auto const punched = file_.punch(range);
        {
            MutexLock lock{mutex_};
            (punched ? holes_ : kept_).insert(range);
        }
        if (!punched) {
            return;  // it cannot, then it cannot the next either
        }
        cut_the_end();
    }
}

void DiskAllocator::cut_the_end() {
    std::int64_t end = 0;
    {
        MutexLock lock{mutex_};
        auto const last = holes_.take_ending_at(end_);
        if (!last) {
            return;
        }
        end = end_ = last->offset;
    }
    file_.truncate(end);
}

void DiskAllocator::trim() {
    MutexLock grow_lock{grow_mutex_};
    // A quarter below the bound, so that the next few blocks that are freed do not call for it again.
    punch_until([&]() RAPIDSMPF_REQUIRES(mutex_) { return kept_.total() <= keep_free_ - keep_free_ / 4; });
    MutexLock lock{mutex_};
    trimming_ = false;
}

std::int64_t DiskAllocator::used() const {
    MutexLock lock{mutex_};
    return used_;
}

std::int64_t DiskAllocator::peak() const {
    MutexLock lock{mutex_};
    return peak_;
}

std::int64_t DiskAllocator::kept() const {
    MutexLock lock{mutex_};
    return kept_.total();
}

}  // namespace rapidsmpf::detail

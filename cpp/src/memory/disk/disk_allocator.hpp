// Who has which range of the spill file, and how many bytes that makes on disk.
//
// A free range either still has its blocks (kept for reuse) or is a hole that costs nothing. Kept ranges are used
// first; the file grows in large steps. Thread-safe: bookkeeping is under one short lock, calls of the file system
// are outside of it.
#pragma once

#include <cstdint>
#include <functional>

#include <rapidsmpf/core/mutex.hpp>

#include "memory/disk/disk_file.hpp"

namespace rapidsmpf::detail {

class DiskAllocator {
  public:
    DiskAllocator(DiskFile& file, std::int64_t limit, std::int64_t keep_free);

    // A range of `length` bytes, a multiple of disk_page. Throws SpillError when that breaks the limit or the file
    // system has no more.
    [[nodiscard]] FileRange allocate(std::int64_t length);
    // Takes a range back; returns whether trim() should be called.
    [[nodiscard]] bool free(FileRange range);
    // The same for a range that could not be written: its blocks go back to the file system.
    void discard(FileRange range);
    // Returns kept ranges to the file system until less than the bound is left.
    void trim();

    [[nodiscard]] std::int64_t used() const;
    [[nodiscard]] std::int64_t peak() const;
    [[nodiscard]] std::int64_t kept() const;
    [[nodiscard]] std::int64_t limit() const noexcept { return limit_; }

  private:
    [[nodiscard]] FileRange allocate_slowly(std::int64_t length) RAPIDSMPF_EXCLUDES(grow_mutex_, mutex_);
    [[nodiscard]] FileRange grow(std::int64_t length) RAPIDSMPF_REQUIRES(grow_mutex_)
        RAPIDSMPF_EXCLUDES(mutex_);
    // Punches the largest kept ranges until `enough()`, which is asked under the lock.
    void punch_until(std::function<bool()> const& enough) RAPIDSMPF_REQUIRES(grow_mutex_)
        RAPIDSMPF_EXCLUDES(mutex_);
    void cut_the_end() RAPIDSMPF_REQUIRES(grow_mutex_) RAPIDSMPF_EXCLUDES(mutex_);

    DiskFile& file_;
    std::int64_t limit_;
    std::int64_t keep_free_;
    Mutex grow_mutex_ RAPIDSMPF_ACQUIRED_BEFORE(mutex_);  // one at a time changes the file
    mutable Mutex mutex_;
    FreeFileExtents kept_ RAPIDSMPF_GUARDED_BY(mutex_);   // free, with blocks
    FreeFileExtents holes_ RAPIDSMPF_GUARDED_BY(mutex_);  // free, without
    std::int64_t end_ RAPIDSMPF_GUARDED_BY(mutex_){0};    // of the file
    std::int64_t used_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::int64_t peak_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool trimming_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

}  // namespace rapidsmpf::detail

// The spill file: a large file without a name, and how bytes get into and out of it.
//
// It has no name from the beginning (O_TMPFILE) where the file system can do that, else it is unlinked as soon as it
// is open: whatever ends the process, nothing is left behind. I/O is direct where the file system allows it.
// Opened on first use. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <sys/uio.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/detail/free_extents.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf::detail {

// Offsets, lengths and memory of direct I/O are multiples of it.
constexpr std::int64_t disk_page = 4096;

using FreeFileExtents = FreeExtents<std::int64_t>;
using FileRange = FreeFileExtents::Range;

class DiskFile {
  public:
    DiskFile(std::filesystem::path directory, std::shared_ptr<DiskFaults> faults);

    // Throws SpillError, and tries anew the next time.
    void open();

    // Reserves blocks of the file system for a range; the file grows where the range goes beyond it. Throws
    // SpillError.
    void allocate(FileRange range);
    // Gives the blocks of a range back; false when the file system cannot do that.
    [[nodiscard]] bool punch(FileRange range) noexcept;
    // Truncates the file to `size`.
    void truncate(std::int64_t size) noexcept;

    // Writes from, or reads into, the pieces one after the other. `offset` and the lengths are multiples of
    // disk_page, the memory is aligned to it. Throws SpillError, also when the file ends before.
    void write(std::int64_t offset, std::span<iovec const> pieces);
    void read(std::int64_t offset, std::span<iovec const> pieces);

    [[nodiscard]] std::filesystem::path const& directory() const noexcept { return directory_; }
    [[nodiscard]] std::string describe() const;

  private:
    enum class Direction : std::uint8_t { write, read };
    [[nodiscard]] FileDescriptor open_nameless(int flags);
    [[nodiscard]] FileDescriptor open_and_unlink(int flags);
    [[nodiscard]] int call_open(std::filesystem::path const& path, int flags);
    void make_directory();
    void transfer(Direction direction, std::int64_t offset, std::span<iovec const> pieces);
    void leave_direct_io();
    [[noreturn]] void fail(std::string const& action, int error_number) const;

    std::filesystem::path directory_;
    std::shared_ptr<DiskFaults> faults_;
    Mutex open_mutex_;  // one at a time opens the file
    std::atomic<bool> is_open_{false};
    std::atomic<bool> direct_{false};
    std::atomic<bool> can_punch_{true};
    FileDescriptor file_;  // constant once is_open_
};

}  // namespace rapidsmpf::detail

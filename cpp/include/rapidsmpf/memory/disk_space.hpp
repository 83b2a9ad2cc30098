// The DISK tier: blocks of bytes in a spill file of this process.
//
// A DiskSpace owns one large file that has no name (it is gone when the process is, however that ends), the free
// space in it and a few threads that write and read. A DiskExtent owns the stored bytes of one block and gives the
// space back when it is destroyed; it keeps its DiskSpace alive. I/O goes past the page cache where the file
// system can (O_DIRECT): directly from and to memory that is aligned to DiskSpace::alignment, through a block of
// the I/O thread otherwise. Every block has checksums, which are verified before a read returns.
//
// Nothing is opened and no thread started before the first write; but from_options() opens the file at once where
// the options name a folder, so that one that cannot be used is an error then and not hours later. All methods are thread-safe. An operation that
// fails throws SpillError, keeps nothing, and leaves the space usable for the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {

class DiskFaults;
class DiskSpace;
namespace detail {
class DiskOperation;
class DiskRegion;
struct StoredBlock;
}  // namespace detail

// Owns the stored bytes of one block. Empty when made by default or moved from.
class DiskExtent {
  public:
    DiskExtent() noexcept = default;
    explicit DiskExtent(std::shared_ptr<detail::StoredBlock const> block) noexcept;
    ~DiskExtent();
    DiskExtent(DiskExtent&&) noexcept = default;
    DiskExtent& operator=(DiskExtent&&) noexcept = default;
    DiskExtent(DiskExtent const&) = delete;
    DiskExtent& operator=(DiskExtent const&) = delete;

    [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }
    // Bytes of the block.
    [[nodiscard]] std::size_t size() const noexcept;
    // Bytes that it takes on disk: the size in whole pages, or for a small block that shares pages its own part.
    [[nodiscard]] std::size_t stored_bytes() const noexcept;
    // Null when empty.
    [[nodiscard]] std::shared_ptr<DiskSpace> space() const;

  private:
    friend class DiskSpace;
    std::shared_ptr<detail::StoredBlock const> block_;
};

// An operation in flight. Move-only; its destructor waits, so the memory that is written from or read to may go
// after the handle. Dropping the handle of a write releases the stored bytes.
class PendingDiskOperation {
  public:
    ~PendingDiskOperation();
    PendingDiskOperation(PendingDiskOperation&&) noexcept = default;
    PendingDiskOperation& operator=(PendingDiskOperation&& other) noexcept;
    PendingDiskOperation(PendingDiskOperation const&) = delete;
    PendingDiskOperation& operator=(PendingDiskOperation const&) = delete;

    // Whether it is over, well or not. The memory is no longer touched from then on.
    [[nodiscard]] bool is_done() const;
    // Blocks until it is over; does not throw what went wrong.
    void wait() const noexcept;
    // Blocks until it is over and throws what went wrong.
    void get() const;
    // Calls `callback` once when the operation is over: on an I/O thread (then it may still run when wait()
    // returns), or here when it is over already. It must be quick, not throw and not wait for the disk. At most
    // one callback.
    void on_done(std::function<void()> callback);

  protected:
    PendingDiskOperation(
        std::shared_ptr<DiskSpace> space, std::shared_ptr<detail::DiskOperation> operation) noexcept;
    void finish() noexcept;

    std::shared_ptr<DiskSpace> space_;
    std::shared_ptr<detail::DiskOperation> operation_;  // null when moved from
};

class PendingWrite final : public PendingDiskOperation {
  public:
    // Waits; the extents in the order of the blocks. Throws what went wrong. To be called once.
    [[nodiscard]] std::vector<DiskExtent> take();
    // As take() for a single block.
    [[nodiscard]] DiskExtent take_one();

  private:
    friend class DiskSpace;
    using PendingDiskOperation::PendingDiskOperation;
};

class PendingRead final : public PendingDiskOperation {
    friend class DiskSpace;
    using PendingDiskOperation::PendingDiskOperation;
};

class DiskSpace : public std::enable_shared_from_this<DiskSpace> {
  public:
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
    // Memory aligned like this is written and read without a copy.
    static constexpr std::size_t alignment = 4096;

    struct Settings {
        Settings() {}  // user-written: travels through coroutines, not an aggregate
        // The folder of the file. Made (mode 0700) when missing, never removed. Empty: $TMPDIR, else /tmp, where
        // nothing but the nameless file is made.
        std::filesystem::path directory;
        // Bytes on disk, free space that is kept for reuse included.
        std::int64_t limit{unlimited};
        // How many chunks are in flight at once.
        std::size_t io_threads{8};
        // Space that was freed stays with the file up to so many bytes; the rest goes back to the file system.
        std::int64_t keep_free{std::int64_t{256} << 20};
        std::shared_ptr<Statistics> statistics;          // null: disabled statistics
        std::shared_ptr<DiskFaults> faults_for_testing;  // null: none
    };

    // Throws std::invalid_argument for a negative limit or no threads.
    [[nodiscard]] static std::shared_ptr<DiskSpace> make(Settings settings);
    // spill_directory (a path), spill_disk_limit (bytes, a share of the file system, or "disabled": no limit),
    // spill_io_threads. Throws std::invalid_argument when an option has no usable value: also when no file can be
    // made in the spill_directory that it names.
    [[nodiscard]] static std::shared_ptr<DiskSpace> from_options(
        config::Options options, std::shared_ptr<Statistics> statistics = nullptr);
    ~DiskSpace();
    DiskSpace(DiskSpace const&) = delete;
    DiskSpace& operator=(DiskSpace const&) = delete;

    // Writes all blocks, or none: throws SpillError. Small blocks share pages. The extents come in the order of
    // the blocks.
    [[nodiscard]] std::vector<DiskExtent> write(std::span<std::span<std::byte const> const> blocks);
    [[nodiscard]] DiskExtent write(std::span<std::byte const> block);
    // The same in the background; the bytes must not change or go before the operation is over. Throws SpillError
    // at once when there is no space, as PendingWrite::take() does for what goes wrong later.
    [[nodiscard]] PendingWrite start_write(std::span<std::span<std::byte const> const> blocks);
    [[nodiscard]] PendingWrite start_write(std::span<std::byte const> block);

    // Reads destination.size() bytes of the block from `offset` on, verified. Throws SpillError, and
    // std::out_of_range when the block ends before. After an error the destination holds anything.
    void read(DiskExtent const& extent, std::size_t offset, std::span<std::byte> destination);
    // The same in the background; the extent may go meanwhile, the destination may not.
    [[nodiscard]] PendingRead start_read(
        DiskExtent const& extent, std::size_t offset, std::span<std::byte> destination);
    // Reads whole extents, each into a destination of its size, in the background. Small ones that lie close together in the
    // file come with one transfer. The reads are in the order of what is `wanted`.
    struct WholeRead {
        DiskExtent const* extent;
        std::span<std::byte> destination;
    };
    [[nodiscard]] std::vector<PendingRead> start_reads(std::span<WholeRead const> wanted);

    // Bytes on disk that extents hold, and the most there ever were.
    [[nodiscard]] std::int64_t used() const;
    [[nodiscard]] std::int64_t peak() const;
    // Free bytes that are kept on disk for reuse.
    [[nodiscard]] std::int64_t kept_free_for_testing() const;
    [[nodiscard]] std::int64_t limit() const noexcept;
    [[nodiscard]] std::filesystem::path const& directory() const noexcept;
    // "/data/spill (ext4 file system at /data, 12 GiB of 250 GiB free)", for messages.
    [[nodiscard]] std::string describe() const;

  private:
    struct Parts;
    explicit DiskSpace(Settings settings);
    std::unique_ptr<Parts> parts_;
    friend class detail::DiskRegion;
};

}  // namespace rapidsmpf

// One stored block: where it lies in the spill file, its checksums, and how its bytes are written and read.
//
// A block is divided into pieces with a checksum each, and into chunks (whole pieces) that are transferred at once.
// Memory that is aligned takes part in the I/O directly; the rest goes through the I/O thread's own block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/disk/disk_file.hpp"
#include "memory/disk/io_pool.hpp"

namespace rapidsmpf {
class DiskSpace;
}

namespace rapidsmpf::detail {

// Has a checksum; what must be read at least for a part of a block.
constexpr std::size_t piece_size = std::size_t{256} << 10;
// One transfer between file and memory.
constexpr std::size_t chunk_size = std::size_t{4} << 20;
// What goes through the memory of an I/O thread at once, and how much small blocks share.
constexpr std::size_t staged_size = std::size_t{1} << 20;
// Smaller blocks share pages, if there are several.
constexpr std::size_t small_block = std::size_t{64} << 10;
// Blocks that are read by one transfer have at most so many bytes between one and the next.
constexpr std::size_t most_skipped = std::size_t{16} << 10;
// Of an I/O thread: the staged bytes, and the pages that they begin and end in.
constexpr std::size_t io_block_size = staged_size + 2 * static_cast<std::size_t>(disk_page);

// A range of the file with an owner; several small blocks may share one.
class DiskRegion {
  public:
    DiskRegion(std::shared_ptr<DiskSpace> space, FileRange range) noexcept;
    ~DiskRegion();
    DiskRegion(DiskRegion const&) = delete;
    DiskRegion& operator=(DiskRegion const&) = delete;

    [[nodiscard]] std::shared_ptr<DiskSpace> const& space() const noexcept { return space_; }
    [[nodiscard]] FileRange range() const noexcept { return range_; }
    // The disk would not take it: its blocks shall not be used again.
    void mark_bad() noexcept { bad_ = true; }

  private:
    std::shared_ptr<DiskSpace> space_;
    FileRange range_;
    std::atomic<bool> bad_{false};
};

struct StoredBlock {
    std::shared_ptr<DiskRegion> region;  // null: no bytes
    std::int64_t position{0};            // of the first byte in the file
    std::size_t size{0};
    std::size_t stored_bytes{0};
    std::vector<std::uint32_t> checksums;  // of each piece

    [[nodiscard]] std::size_t pieces() const noexcept { return (size + piece_size - 1) / piece_size; }
};

// Writes the chunk of `bytes` (the whole block) that begins at `begin`, and sets its checksums. Throws SpillError.
void write_chunk(
    DiskFile& file, StoredBlock& block, std::span<std::byte const> bytes, std::size_t begin, IoBlock& memory);

// Writes small blocks that lie behind one another in one region, which is at most staged_size long.
void write_together(
    DiskFile& file, std::span<StoredBlock* const> blocks, std::span<std::span<std::byte const> const> bytes,
    IoBlock& memory);

// Reads what the chunk that begins at `begin` (a multiple of chunk_size) has of the bytes from `offset` on, verifies
// it, and puts it in its place in `destination`. Throws SpillError.
void read_chunk(
    DiskFile& file, StoredBlock const& block, std::size_t begin, std::size_t offset,
    std::span<std::byte> destination, IoBlock& memory);

// The bytes of blocks that lie close together in the file, one behind the other, read by one transfer. Where that fails, and
// where there is only one block, each is read by itself.
class ReadTogether {
  public:
    // Reads from the beginning of the first block to the end of the last, at most staged_size bytes. This object uses `memory`
    // until it goes.
    ReadTogether(DiskFile& file, StoredBlock const& first, StoredBlock const& last, IoBlock& memory);

    // Verifies one of the blocks and copies it to `destination`. Throws SpillError.
    void give(StoredBlock const& block, std::span<std::byte> destination);

  private:
    DiskFile& file_;
    IoBlock& memory_;
    std::int64_t begin_{0};  // in the file, of what was read
    bool has_all_{false};
};

}  // namespace rapidsmpf::detail

// Memory of this process's compute device that other processes of this host can write to: blocks in a few large regions.
//
// A device's memory is shared by the allocation, not by the byte: each allocation has a handle that a peer opens once, which
// takes it milliseconds. So blocks are parts of large regions that stay until the process ends; peers hear of a
// region when it has been made, and of a block as (region, offset). New regions grow with what there is, up to a bound.
//
// The process owns the regions. A process that has opened one is trusted not to write where it was not asked to.
// Devices whose memory is the host's have SharedMemory instead (shared_memory.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {

// What a peer needs to open a region.
struct ExportedRegion {
    ExportedRegion(std::uint32_t id_, std::uint64_t size_, std::vector<std::uint8_t> handle_)
        : id{id_}, size{size_}, handle{std::move(handle_)} {}
    std::uint32_t id;
    std::uint64_t size;
    std::vector<std::uint8_t> handle;
};

// A range of a region. Its destructor releases it; it is not handed out before the work that `stream` has then is done.
class ExportedBlock {
  public:
    ExportedBlock(
        std::byte* data, std::uint32_t region, std::uint64_t offset, std::size_t size, Stream stream) noexcept
        : data_{data}, offset_{offset}, size_{size}, stream_{stream}, region_{region} {}
    ExportedBlock(ExportedBlock const&) = delete;
    ExportedBlock& operator=(ExportedBlock const&) = delete;
    virtual ~ExportedBlock() = default;

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::uint32_t region() const noexcept { return region_; }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    // At least what was asked for.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // On which the block is used, or which waits for the stream that uses it.
    [[nodiscard]] Stream stream() const noexcept { return stream_; }

  private:
    std::byte* data_;
    std::uint64_t offset_;
    std::size_t size_;
    Stream stream_;
    std::uint32_t region_;
};

// The regions of another process, as far as they are open in this one. All communicators of this process share one for
// each owner.
class ImportedMemory {
  public:
    ImportedMemory() = default;
    ImportedMemory(ImportedMemory const&) = delete;
    ImportedMemory& operator=(ImportedMemory const&) = delete;
    virtual ~ImportedMemory() = default;

    // Opens a region, unless it is open; returns why that cannot be, else nothing.
    [[nodiscard]] virtual std::string open(ExportedRegion const& region) = 0;
    // Where the bytes lie for this process; null when they are not all in a region that is open.
    [[nodiscard]] virtual std::byte* at(
        std::uint32_t region, std::uint64_t offset, std::uint64_t bytes) const = 0;
};

class ExportedMemory {
  public:
    ExportedMemory() = default;
    ExportedMemory(ExportedMemory const&) = delete;
    ExportedMemory& operator=(ExportedMemory const&) = delete;
    virtual ~ExportedMemory() = default;

    // Names this memory among those of all processes of the host.
    [[nodiscard]] virtual std::vector<std::uint8_t> identity() const = 0;
    // A block that is free to be written at once, its bytes of any value, aligned as Device::allocate() does; null when
    // there is no memory left for it.
    [[nodiscard]] virtual std::shared_ptr<ExportedBlock> allocate(std::size_t bytes, Stream stream) = 0;
    // How many regions there are; their ids are 0, 1, ... They are never given up.
    [[nodiscard]] virtual std::uint32_t num_regions() const noexcept = 0;
    [[nodiscard]] virtual ExportedRegion region(std::uint32_t id) const = 0;
    // The regions of the process whose memory has this identity, to be opened here; null, with the reason, when this
    // device cannot write to that kind of memory.
    [[nodiscard]] virtual std::shared_ptr<ImportedMemory> import(
        std::span<std::uint8_t const> identity, std::string& reason) = 0;
    // To write to peers on, one of a few in turn: nothing else is on them, so writes do not wait for what computes, nor that
    // for them.
    [[nodiscard]] virtual Stream next_write_stream() = 0;
    // Holds on to a block until `is_safe` says so: others may still write to it. Asked whenever a block is asked for.
    virtual void quarantine(std::shared_ptr<ExportedBlock> block, std::function<bool()> is_safe) = 0;
    // Bytes in blocks that are in use, those in quarantine included, and in all regions.
    [[nodiscard]] virtual std::size_t used() const noexcept = 0;
    [[nodiscard]] virtual std::size_t capacity() const noexcept = 0;
};

}  // namespace rapidsmpf::device

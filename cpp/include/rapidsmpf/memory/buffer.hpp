// A block of bytes in one memory tier.
//
// A Buffer owns its bytes and the part of its BufferResource's budget that they take, and releases both
// when it is destroyed. Work on the bytes is ordered on the buffer's stream: a writer records an event, and
// a reader on another stream (or the host) waits for it. Not copyable, handed around by unique_ptr.
// Made by BufferResource only. A buffer on DISK has no address: it is read by moving it to another tier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/disk_space.hpp>
#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

class Buffer;
class BufferResource;
namespace detail {
class SpillRegistry;
class TierCopier;
// Prefetches the reference count of a buffer's memory: before many buffers are split or freed.
void prefetch_owner(Buffer const& buffer) noexcept;
}  // namespace detail

class Buffer {
  public:
    ~Buffer();
    Buffer(Buffer const&) = delete;
    Buffer& operator=(Buffer const&) = delete;

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] MemoryType mem_type() const noexcept { return type_; }
    [[nodiscard]] Stream stream() const noexcept { return stream_; }
    [[nodiscard]] std::shared_ptr<BufferResource> const& resource() const noexcept { return resource_; }

    // The bytes; null on DISK. Reading from the host needs is_ready() or synchronize() first.
    [[nodiscard]] std::byte const* data() const noexcept { return data_; }
    // Whether the bytes can be addressed by the CPU (HOST and PINNED_HOST always, DEVICE on a CPU device).
    [[nodiscard]] bool is_host_accessible() const noexcept;
    // The bytes for the CPU to read; waits for writes in flight. Throws std::logic_error if not host accessible.
    [[nodiscard]] std::span<std::byte const> host_bytes() const;

    // Calls write(bytes, stream), which enqueues writes on the stream, and records that they happened.
    void write(std::function<void(std::byte*, Stream)> const& write);
    // The same for many buffers of one stream that are written together: one mark stands for all of them.
    static void write_together(
        std::span<std::unique_ptr<Buffer> const> buffers, std::function<void(Stream)> const& write);
    // For a CPU to write at once: the mutable bytes. Throws std::logic_error if not host accessible.
    [[nodiscard]] std::span<std::byte> mutable_host_bytes();

    // Whether all writes are done.
    [[nodiscard]] bool is_ready() const;
    void synchronize() const;
    // What says when all writes are done; null if they are known to be (a GPU is not asked).
    [[nodiscard]] std::shared_ptr<Event const> write_in_flight() const noexcept { return last_write_; }
    // Has what comes on `stream` wait for all writes.
    void wait_for_writes(Stream stream) const;

    // Buffers that share one block, as those of a table with many partitions do. Joining and splitting them moves no bytes
    // and changes nothing for the budget; the block is freed with the last of them.
    // Whether `next` begins where this one ends, in the same block of foreign memory.
    [[nodiscard]] bool is_followed_by(Buffer const& next) const noexcept;
    // Takes in one that follows.
    void append(std::unique_ptr<Buffer> next) noexcept;
    // `size` bytes from `offset` on as a buffer of their own, which counts them from now on. Each byte may be split off once;
    // this one still has the address of all, and counts the rest. Throws std::logic_error on DISK.
    [[nodiscard]] std::unique_ptr<Buffer> split_off(std::size_t offset, std::size_t size);

  private:
    friend class BufferResource;
    friend class detail::SpillRegistry;
    friend class detail::TierCopier;
    friend void detail::prefetch_owner(Buffer const& buffer) noexcept;
    // `data` may be foreign memory: then `owner` keeps it alive and is dropped in place of a deallocation.
    Buffer(
        std::shared_ptr<BufferResource> resource, MemoryType type, std::byte* data, std::size_t size,
        Stream stream, std::shared_ptr<void> owner, DiskExtent extent = {});
    // As write(), on another stream; this buffer stays on its own. The caller waits before anything else is done with it.
    void write_on(Stream stream, std::function<void(std::byte*, Stream)> const& write);
    // A part to be read as long as this one lives: owns nothing and counts nothing.
    [[nodiscard]] std::unique_ptr<Buffer> view(std::size_t offset, std::size_t size) const;
    [[nodiscard]] std::unique_ptr<Buffer> part(
        std::size_t offset, std::size_t size, std::shared_ptr<void> owner, std::size_t counted) const;

    std::shared_ptr<BufferResource> resource_;
    MemoryType type_;
    std::byte* data_;
    std::size_t size_;
    std::size_t counted_;  // in the budget
    Stream stream_;
    std::shared_ptr<void> owner_;
    DiskExtent extent_;                  // on DISK
    std::shared_ptr<Event> last_write_;  // null on a CPU: writes are done when the call returns
};

}  // namespace rapidsmpf

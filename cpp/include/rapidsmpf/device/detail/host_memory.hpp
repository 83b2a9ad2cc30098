// Host memory for either device: aligned blocks, of which some that are free are kept for the next who asks.
//
// A block from the system comes as fresh pages that the kernel has to clear, one fault after the other; for work that
// takes and frees large blocks all the time that is a third of its time. So blocks from 64 KiB on come in sizes of
// their own (eight steps for each doubling: at most an eighth is lost), and when they are freed up to a bound of bytes
// is kept. Kept bytes are resident memory: code that watches a limit counts them as available, and releases them with
// trim_host_memory() when memory is short.
//
// Under AddressSanitizer nothing is kept, so that it sees every use of freed memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapidsmpf {
class Device;
}

namespace rapidsmpf::device {

// A block, aligned to a page from 4 KiB on, else to Device::alignment. Blocks from 4 MiB on get huge pages where the
// system has them. Throws OutOfMemory.
[[nodiscard]] void* allocate_host(std::size_t bytes);
// Takes a block back; `bytes` as it was asked for.
void deallocate_host(void* pointer, std::size_t bytes) noexcept;

// Bytes in free blocks that are kept.
[[nodiscard]] std::size_t cached_host_memory() noexcept;
// Returns free blocks to the system until at most `keep` bytes of them are left; returns how many bytes these had.
std::size_t trim_host_memory(std::size_t keep) noexcept;
// How many bytes of free blocks are kept at most; at first a sixteenth of the memory that this process may use, but
// not over 1 GiB. What is over is released at once.
[[nodiscard]] std::size_t host_memory_cache_limit() noexcept;
void set_host_memory_cache_limit(std::size_t bytes) noexcept;

// The memory that this process uses.
struct HostMemoryUse {
    std::int64_t resident{0};
    // Of that, free blocks that are kept, here and in shared memory.
    std::int64_t kept{0};
    std::int64_t kept_shared{0};
    [[nodiscard]] std::int64_t in_use() const noexcept { return resident - kept - kept_shared; }
};
[[nodiscard]] HostMemoryUse measure_host_memory(Device const& device);
// What is kept must not be what takes the process over a limit: above `high` bytes gives as much of it back as that takes.
void trim_host_memory_above(std::int64_t high, HostMemoryUse const& use) noexcept;

}  // namespace rapidsmpf::device

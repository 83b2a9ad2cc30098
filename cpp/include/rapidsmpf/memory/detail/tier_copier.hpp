// Copies the bytes of buffers between the tiers of a BufferResource, and counts what that moves.
//
// Every copy of a buffer is made here, whether it was asked for or is part of spilling: the statistics copy-* and spill-* say
// how many bytes went from which tier to which, and how long that took. Owned by the BufferResource. All methods are
// thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::detail {

class TierCopier {
  public:
    explicit TierCopier(BufferResource& resource) : resource_{resource} {}
    TierCopier(TierCopier const&) = delete;
    TierCopier& operator=(TierCopier const&) = delete;

    // A copy of the buffer's bytes [offset, offset + size) in the reservation's tier. Throws SpillError when one of the two is
    // DISK and fails.
    [[nodiscard]] std::unique_ptr<Buffer> copy(
        Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation);
    // The same without waiting for the copy: it is done when it is_ready(), and until then the buffer must stay. Not from
    // or to DISK. Not counted.
    [[nodiscard]] std::unique_ptr<Buffer> start_copy(
        Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation);
    // Copies of buffers in another tier of memory, all under way at once and done on return; null for those that it has no
    // room for.
    [[nodiscard]] std::vector<std::unique_ptr<Buffer>> copy_while_there_is_room(
        std::span<Buffer const* const> buffers, MemoryType to);

    // Copies of buffers on DISK, in one go; all or SpillError.
    [[nodiscard]] std::vector<std::unique_ptr<Buffer>> write_to_disk(std::span<Buffer const* const> buffers);
    // Copies, readable by the CPU, of buffers on DISK, in the background: `done` of each gets it or the error, on some thread.
    // A buffer must stay until then. `memory` is of BufferResource::type_to_read_into().
    using ReadDone = std::function<void(std::unique_ptr<Buffer>, std::exception_ptr)>;
    struct ReadBack {
        Buffer const* buffer;
        MemoryReservation memory;
        ReadDone done;
    };
    void read_back(std::vector<ReadBack> wanted);

  private:
    using Clock = std::chrono::steady_clock;

    void count(MemoryType from, MemoryType to, std::size_t size, Clock::duration time);
    // Whether the disk can read and write the memory of a tier.
    [[nodiscard]] bool is_direct(MemoryType type) const noexcept;
    // Where bytes on a GPU are staged on their way to the disk.
    [[nodiscard]] MemoryType staging_type() const noexcept;
    // Copies of those that the host cannot read, under way; null for the others.
    [[nodiscard]] std::vector<std::unique_ptr<Buffer>> stage(std::span<Buffer const* const> buffers);

    BufferResource& resource_;
};

}  // namespace rapidsmpf::detail

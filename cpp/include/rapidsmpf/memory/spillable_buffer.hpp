// A Buffer that may be moved to a lower tier while it is not pinned.
//
// Bytes that are not needed now are wrapped in a SpillableBuffer with the time of their next use (next_use). From
// then on the arbiter of their BufferResource may move them to a lower tier, and does so before memory runs out:
// those needed last first, then the largest, then those that have a copy on a lower tier already. The owner pins the
// bytes to read them, or takes them. Pinned bytes are never moved. Bytes that were fetched back keep their copy on
// the lower tier until they are taken, so that they can be dropped again without being written.
//
// A SpillableBuffer owns its bytes, in any tier; what is being moved when it is destroyed is freed when the
// move has ended. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>

namespace rapidsmpf {

class BufferResource;

namespace detail {
struct SpillEntry;
}

// Called, on some thread, when a move has ended during which a caller was refused. Must not block.
class MoveListener {
  public:
    virtual void moved() noexcept = 0;

  protected:
    ~MoveListener() = default;
};

class SpillableBuffer {
  public:
    // Smaller is sooner. Any scale will do as long as all buffers of a resource use the same.
    using NextUse = std::uint64_t;
    static constexpr NextUse soon = 0;

    // `listener` may be empty. Throws std::invalid_argument when `buffer` is null.
    explicit SpillableBuffer(
        std::unique_ptr<Buffer> buffer, NextUse next_use = soon, std::weak_ptr<MoveListener> listener = {});
    SpillableBuffer(SpillableBuffer const&) = delete;
    SpillableBuffer& operator=(SpillableBuffer const&) = delete;
    ~SpillableBuffer();

    [[nodiscard]] std::size_t size() const noexcept;
    // Where the bytes are now; they may be elsewhere the next moment unless they are pinned.
    [[nodiscard]] MemoryType mem_type() const;
    void set_next_use(NextUse next_use);
    // Prefetches the bookkeeping of the bytes, not the bytes: before many buffers are taken.
    void prefetch() const noexcept;

    // The bytes, in memory, for as long as the pointer lives; null while they are being moved or are on disk.
    // A refused caller's listener is called when the move ends. Throws what made an earlier fetch() fail.
    [[nodiscard]] std::shared_ptr<Buffer const> try_pin();
    // After a try_pin() that was refused: whether the bytes lie on disk and nothing moves them, be it that a move ended just
    // before. Then the listener is not called; fetch() and try_pin() are to be called again.
    [[nodiscard]] bool rests_on_disk();
    // As try_pin(), and waits: for a move, for memory, for the disk. Throws SpillError, and ReservationError when
    // there is no memory and the resource's requests may not overbook.
    [[nodiscard]] std::shared_ptr<Buffer const> pin();
    // Has the bytes read back from disk in the background; a no-op when they are not there, and, without
    // overbooking, when there is no memory for them. try_pin() succeeds, or throws, once that is done.
    void fetch(AllowOverbooking allow = AllowOverbooking::yes);
    // The same for several buffers of one resource; what lies close together on the disk comes with one transfer. Without
    // overbooking, for as many as there is memory for.
    static void fetch_all(
        std::span<SpillableBuffer* const> buffers, AllowOverbooking allow = AllowOverbooking::yes);
    // Keeps the bytes from being spilled, from the time they are in memory until take(). A caller that is about to take() them
    // calls this first: else they may be spilled once more and read from disk twice.
    void keep_to_take();
    // Takes the bytes out, wherever they are, and leaves this object empty; waits for a move to end. Throws
    // std::logic_error when they are pinned.
    [[nodiscard]] std::unique_ptr<Buffer> take();

  private:
    [[nodiscard]] std::shared_ptr<Buffer const> pinned();

    std::shared_ptr<BufferResource> resource_;
    std::shared_ptr<detail::SpillEntry> entry_;
};

}  // namespace rapidsmpf

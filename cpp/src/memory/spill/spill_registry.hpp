// All SpillableBuffers of a BufferResource, and the order in which they are to be moved down.
//
// One mutex guards the entries. Bytes are moved, and buffers freed, outside it: freeing may run foreign code.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/detail/spillable_parts.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "memory/spill/eviction_queue.hpp"

namespace rapidsmpf {

class BufferResource;

namespace detail {

// Moved in one go: enough to keep a disk busy, little enough that those who wait for memory are served meanwhile.
inline constexpr std::size_t spill_batch = 64UL << 20U;

// A part of an entry that is taken in parts.
struct SpillPart {
    std::size_t offset;
    std::size_t size;
    std::unique_ptr<Buffer> stored;  // on disk; null: it is in the buffer of the entry
    bool taken{false};
};

// What is looked at whenever one is used comes first: there may be very many.
struct SpillEntry : std::enable_shared_from_this<SpillEntry> {
    std::unique_ptr<Buffer> buffer;  // null once taken
    std::vector<SpillPart> parts;    // none: it is taken as a whole
    std::size_t held{0};             // of `size`, what moving it would free
    bool listed{false};              // among the victims of its tier, `home`
    MemoryType home{MemoryType::DEVICE};
    bool moving{false};   // a thread reads `buffer` to replace it
    bool dropped{false};  // the SpillableBuffer is gone
    bool awaited{false};  // it is taken next: moving it down would be in vain
    bool refused{false};  // tell the listener when the move ends
    std::uint32_t pins{0};
    std::size_t size{0};
    SpillableBuffer::NextUse next_use{0};
    std::unique_ptr<Buffer> lower;  // the same bytes further down, left there by a fetch
    std::weak_ptr<MoveListener> listener;
    std::exception_ptr error;  // of a fetch
    VictimHook<SpillEntry> hook;
};

class SpillRegistry {
  public:
    using EntryPtr = std::shared_ptr<SpillEntry>;

    // Returns whether it is the first that can be moved out of its tier.
    bool add(SpillEntry& entry);
    void drop(EntryPtr const& entry);
    void set_next_use(SpillEntry& entry, SpillableBuffer::NextUse next_use);
    [[nodiscard]] MemoryType mem_type(SpillEntry const& entry) const;
    // Counts a reader of bytes that are in memory and do not move, and returns whether it did.
    [[nodiscard]] bool try_pin(SpillEntry& entry);
    void unpin(SpillEntry& entry) noexcept;
    [[nodiscard]] std::unique_ptr<Buffer> take(SpillEntry& entry);
    // Waits for moves to end. Throws std::logic_error when one has been taken before.
    [[nodiscard]] std::vector<std::unique_ptr<Buffer>> take_parts(
        std::span<SpillableParts::PartHandle const> wanted);
    // See SpillableBuffer::fetch_all(); each comes with the memory to read into.
    void fetch(std::vector<std::pair<EntryPtr, MemoryReservation>> wanted, BufferResource& br);
    // From now on the bytes are not moved down.
    void await(SpillEntry& entry);
    // Whether the bytes are on disk and not being read back.
    [[nodiscard]] bool is_on_disk(SpillEntry const& entry) const;
    // The same; then a caller of try_pin() that was refused is not told of the next move.
    [[nodiscard]] bool rests_on_disk(SpillEntry& entry);
    void wait_while_moving(SpillEntry const& entry);

    // Moves victims of `tier` down until `amount` bytes are freed or none is left; returns how many were. Throws
    // what made a move fail when nothing could be freed: then all bytes are where they were.
    std::size_t spill(BufferResource& br, MemoryType tier, std::size_t amount);

    struct Holdings {
        std::int64_t spillable{0};
        std::int64_t pinned{0};
        std::int64_t moving{0};
    };
    [[nodiscard]] Holdings holdings(MemoryType tier) const;
    [[nodiscard]] bool has_victims(MemoryType tier) const;
    [[nodiscard]] static std::uint64_t bytes_spilled(BufferResource const& br) noexcept;

  private:
    struct Tier {
        EvictionQueue<SpillEntry> victims;
        Holdings holdings;
    };

    [[nodiscard]] static bool is_at_rest_on_disk(SpillEntry const& entry) noexcept;
    [[nodiscard]] std::vector<EntryPtr> choose(MemoryType tier, std::size_t amount);
    // The bytes of a victim further down, as far as there was room for them.
    struct Move {
        std::unique_ptr<Buffer> copy;
        // Of an entry with parts that went to disk: by part that has not been taken, what was read and what was written.
        std::vector<std::unique_ptr<Buffer>> views;
        std::vector<std::unique_ptr<Buffer>> stored;

        [[nodiscard]] bool has_all() const noexcept;
    };
    // `moves`: by victim.
    // Without the lock: what moves is not touched by others.
    static void copy_down(
        BufferResource& br, MemoryType tier, std::vector<EntryPtr> const& victims, std::vector<Move>& moves);
    // What is to be freed, if all of it is further down.
    [[nodiscard]] static std::unique_ptr<Buffer> replace(SpillEntry& entry, Move& move);
    void finish_fetch(EntryPtr const& entry, std::unique_ptr<Buffer> fetched, std::exception_ptr error);
    void end_move(SpillEntry& entry, std::vector<std::shared_ptr<MoveListener>>& listeners)
        RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] std::unique_ptr<Buffer> take_part(UniqueLock& lock, SpillEntry& entry, SpillPart& part)
        RAPIDSMPF_REQUIRES(mutex_);
    void list(SpillEntry& entry) RAPIDSMPF_REQUIRES(mutex_);
    void unlist(SpillEntry& entry) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Tier& tier(MemoryType type) RAPIDSMPF_REQUIRES(mutex_) {
        return tiers_[static_cast<std::size_t>(type)];
    }
    [[nodiscard]] Tier const& tier(MemoryType type) const RAPIDSMPF_REQUIRES(mutex_) {
        return tiers_[static_cast<std::size_t>(type)];
    }

    mutable Mutex mutex_;
    ConditionVariable moved_;
    std::array<Tier, 4> tiers_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::atomic<std::uint64_t> bytes_spilled_{0};
};

}  // namespace detail
}  // namespace rapidsmpf

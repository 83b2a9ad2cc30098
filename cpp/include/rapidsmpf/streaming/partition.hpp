// Rows into collectives: batches are partitioned and inserted into a shuffle, or packed for an all-gather. And partitions as
// messages, on their way to a collective or from one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>
#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/row_routing.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>

namespace rapidsmpf::streaming {

// What went into a collective.
class Inserted {
  public:
    void add(std::int64_t rows, std::size_t bytes) noexcept {
        rows_.fetch_add(rows, std::memory_order_relaxed);
        bytes_.fetch_add(bytes, std::memory_order_relaxed);
    }
    [[nodiscard]] std::int64_t rows() const noexcept { return rows_.load(std::memory_order_relaxed); }
    // Bytes of packed data, those that stay on this rank included.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::int64_t> rows_{0};
    std::atomic<std::size_t> bytes_{0};
};

// Gives batches to a Shuffler in the order of their sequence numbers (0, 1, ... without gaps), whichever of the
// partitioning threads is ready first, so that rows of one rank keep their order within a partition. Thread-safe; never
// waits for another batch: what is partitioned before its turn is under the arbiter of memory until then, which may move
// it to DISK.
class ShuffleInserter {
  public:
    ShuffleInserter(
        std::shared_ptr<coll::Shuffler> shuffler, RowRouting const& routing, Schema const& schema,
        std::shared_ptr<BufferResource> resource);

    // Partitions the batch and inserts it after those before it. Throws what partitioning and Shuffler::insert throw.
    void insert(std::uint64_t sequence, TableBatch const& batch);
    // All batches are in: calls insert_finished(). Throws std::logic_error when one is missing.
    void finish();
    // The other ranks learn why not all is in; see Shuffler::give_up().
    void give_up(std::string const& reason);
    [[nodiscard]] Inserted const& inserted() const noexcept { return inserted_; }

  private:
    // A part of a batch whose turn has not come.
    struct Waiting {
        Waiting(coll::PartitionId partition_, PackedData packed, SpillableBuffer::NextUse next_use)
            : partition{partition_},
              metadata{std::move(packed.metadata)},
              data{std::make_unique<SpillableBuffer>(std::move(packed.data), next_use)} {}
        coll::PartitionId partition;
        std::vector<std::uint8_t> metadata;
        std::unique_ptr<SpillableBuffer> data;
    };

    std::shared_ptr<coll::Shuffler> shuffler_;
    std::shared_ptr<BufferResource> resource_;
    RowRouting::Packer pack_;
    Inserted inserted_;

    Mutex mutex_;
    std::map<std::uint64_t, std::vector<Waiting>> ready_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t next_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool inserting_ RAPIDSMPF_GUARDED_BY(mutex_){false};  // a thread is on its way through ready_
};

// Takes batches (TableBatch) from `in` and inserts their rows, on all threads of the executor at once; says
// insert_finished() when `in` has ended. If anything fails it does not say so, so that no rank takes a part of the
// rows for all of them. Sequence numbers must be 0, 1, ... (as arrow_source gives them).
[[nodiscard]] Actor shuffle_input(
    Context const& context, ChannelPtr in, std::shared_ptr<ShuffleInserter> inserter);

// The same for an all-gather; a batch's sequence number orders its chunk among those of this rank.
[[nodiscard]] Actor allgather_input(
    Context const& context, ChannelPtr in, std::shared_ptr<coll::AllGather> allgather,
    std::shared_ptr<Inserted> inserted);

// A chunk for each of some partitions, as a message: what partition_and_pack() made and a shuffle takes. Where it waits and
// memory is short, its chunks are moved to lower tiers one by one; the receiver gets them where they are then.
class PartitionMapChunk {
  public:
    using Chunks = std::map<coll::PartitionId, PackedData>;
    explicit PartitionMapChunk(Chunks chunks_) noexcept : chunks{std::move(chunks_)} {}
    Chunks chunks;
};

// Chunks of one partition, in their order, as a message: what a shuffle gave. It spills as PartitionMapChunk does.
class PartitionVectorChunk {
  public:
    using Chunks = std::vector<PackedData>;
    explicit PartitionVectorChunk(Chunks chunks_) noexcept : chunks{std::move(chunks_)} {}
    Chunks chunks;
};

namespace detail {
// What both do, chunk by chunk.
template <typename Payload>
struct ChunksTraits {
    [[nodiscard]] static ContentDescription describe(Payload const& payload) noexcept;
    static std::size_t spill(Payload& payload);
    [[nodiscard]] static std::size_t copy_cost(Payload const& payload) noexcept;
    [[nodiscard]] static Payload copy(Payload const& payload, MemoryReservation& reservation);
};
extern template struct ChunksTraits<PartitionMapChunk>;
extern template struct ChunksTraits<PartitionVectorChunk>;
}  // namespace detail

template <>
struct PayloadTraits<PartitionMapChunk> : detail::ChunksTraits<PartitionMapChunk> {};

template <>
struct PayloadTraits<PartitionVectorChunk> : detail::ChunksTraits<PartitionVectorChunk> {};

}  // namespace rapidsmpf::streaming

// Makes the chunks that the store keeps of what has come, or was inserted for this rank's own partitions.
//
// Threading: any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/bundle.hpp"
#include "exchange/local_partitions.hpp"
#include "exchange/partition_store.hpp"
#include "exchange/payload.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// What is to be stored: a chunk, or all chunks of a bundle.
struct Arrival {
    Rank source;
    PartitionId partition{0};          // of a chunk
    std::uint64_t sequence{0};         // of a chunk
    std::shared_ptr<Payload> payload;  // null: a bundle
    std::shared_ptr<Bundle> bundle;

    // Calls use(partition, StoredChunk) for each chunk.
    template <typename Use>
    void for_each_chunk(Use const& use) const {
        if (payload) {
            use(partition, StoredChunk{source, sequence, payload});
            return;
        }
        auto const& chunks = bundle->chunks();
        for (std::size_t i = 0; i < chunks.size(); ++i) {
            use(chunks[i].partition, StoredChunk{source, chunks[i].sequence, bundle, i});
        }
    }
};

using Arrivals = std::vector<Arrival>;

class PieceUnpacker {
  public:
    PieceUnpacker(
        std::shared_ptr<BufferResource> br, LocalPartitions local, Statistics::Id received,
        Statistics::Id received_to_host);

    // Throws FormatError unless a piece that a peer announces is well-formed, and all its chunks are for this rank.
    void check(PieceHeader const& header, std::span<std::uint8_t const> metadata) const;
    // A piece of another rank has come. Throws FormatError.
    void unpack(Rank source, PieceHeader const& header, PackedData piece, Arrivals& to) const;
    // Of this rank's own: a bundle with so many chunks.
    void unpack_bundle(Rank source, std::uint64_t count, PackedData bundle, Arrivals& to) const;
    void keep(
        Rank source, PartitionId partition, std::uint64_t sequence, std::shared_ptr<Payload> payload,
        Arrivals& to) const;

    // When a chunk that waits in the store is needed: in the order of partitions, behind all that waits to be sent.
    [[nodiscard]] SpillableBuffer::NextUse next_use(PartitionId partition) const {
        return first_in_store + local_.find(partition).value_or(0);
    }
    static constexpr SpillableBuffer::NextUse first_in_store{std::uint64_t{1} << 32U};

  private:
    [[nodiscard]] std::vector<BundledChunk> check_bundle(
        std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size) const;
    void check_local(PartitionId partition) const;

    std::shared_ptr<BufferResource> br_;
    LocalPartitions local_;
    Statistics::Id received_;
    Statistics::Id received_to_host_;
};

}  // namespace rapidsmpf::exchange

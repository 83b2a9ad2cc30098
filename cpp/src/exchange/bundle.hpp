// Many chunks that one call inserts for one rank, as one piece.
//
// A table of many partitions is thousands of chunks of a few hundred bytes; on a GPU, which moves a megabyte in two microseconds, chunks
// of megabytes are as small. Each by itself would cost a registration with the arbiter, a few allocations, a place at the
// receiver and a lock for each step, many times what its bytes cost. So they go through outbox, frame, transport and inbox
// as one piece, whose data is theirs side by side and whose metadata lists them. Only the store of the receiver knows them
// one by one, and makes each when it is extracted.
// How it is listed in a message: bundle_listing.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/detail/spillable_parts.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/bundle_listing.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// A bundle to be sent, whose chunks have no sequence numbers yet (set_bundle_sequence()).
struct NewBundle {
    std::vector<PartitionId> partitions;
    PackedData packed;
    std::size_t data_bytes;  // of the chunks, without what is between them
};

// What bundles are made of. Chunks that are neighbours in memory are joined where they lie, in whatever memory that is;
// others are copied, which only chunks of a few KiB that the host can read are worth.
struct BundleLimits {
    std::size_t copied;  // chunks with more bytes are not copied
    std::size_t joined;  // nor are those with more joined
    std::size_t whole;   // the chunks of a bundle have no more bytes
};
// Whether chunks that wait to be extracted may share a block, which is free when the last of them is: while more than half
// of the memory is.
[[nodiscard]] bool keeps_bundles(BufferResource const& br, MemoryType type);
// Whether a chunk may be part of a bundle.
[[nodiscard]] bool can_be_bundled(PackedData const& chunk, BundleLimits const& limits) noexcept;
// Makes bundles of what is more than one chunk, in its order; what is alone is left in `chunks`, all of which may be part
// of one.
[[nodiscard]] std::vector<NewBundle> make_bundles(
    std::vector<std::pair<PartitionId, PackedData>>& chunks, BufferResource& br, BundleLimits const& limits);

// A bundle that has come, and waits for its chunks to be extracted one by one: spillable, thread-safe.
class Bundle {
  public:
    Bundle(PackedData packed, std::vector<BundledChunk> chunks, SpillableBuffer::NextUse next_use);

    [[nodiscard]] std::vector<BundledChunk> const& chunks() const noexcept { return chunks_; }
    // A chunk's metadata, and what its data is to be taken by: many at a time by SpillableParts::take_all().
    [[nodiscard]] std::span<std::uint8_t const> metadata(std::size_t index) const;
    [[nodiscard]] SpillableParts::PartHandle data(std::size_t index) const { return data_.handle(index); }
    // Both. Waits for a move of the data to end; it may be on disk.
    [[nodiscard]] PackedData release(std::size_t index);

  private:
    std::vector<std::uint8_t> metadata_;
    std::vector<BundledChunk> chunks_;
    SpillableParts data_;
};

}  // namespace rapidsmpf::exchange

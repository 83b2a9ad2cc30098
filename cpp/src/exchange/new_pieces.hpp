// What one insert() brings: bundled, and as the operation will keep it, but without sequence numbers yet. Made without the
// operation's mutex, because it takes its time, and inserted under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "exchange/operation_state.hpp"
#include "exchange/payload.hpp"
#include "exchange/piece_unpacker.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class NewPieces {
  public:
    // The partitions exist; empty chunks are left out. `sequence`: about the number that the chunks will get. It says in which
    // order they are sent, and so in which they are not spilled.
    NewPieces(
        OperationState const& state, std::vector<std::pair<PartitionId, PackedData>> chunks,
        std::uint64_t sequence);

    [[nodiscard]] std::vector<PartitionId> const& partitions() const noexcept { return partitions_; }
    // Once: gives all chunks their numbers.
    void insert_into(OperationState& state) RAPIDSMPF_REQUIRES(state.mutex);

    // In the order of next use; all that waits to be sent comes before what waits in the store.
    [[nodiscard]] static SpillableBuffer::NextUse next_use_in_outbox(
        std::uint64_t sequence, std::size_t size) noexcept;

  private:
    struct Single {
        Rank owner;
        PartitionId partition;
        std::shared_ptr<Payload> payload;
    };
    struct Bundled {
        Rank owner;
        std::vector<PartitionId> partitions;
        std::shared_ptr<Payload> payload;
    };

    std::vector<PartitionId> partitions_;
    Arrivals own_;
    std::vector<Single> singles_;
    std::vector<Bundled> bundles_;
};

}  // namespace rapidsmpf::exchange

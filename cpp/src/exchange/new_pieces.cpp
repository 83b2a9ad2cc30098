#include "exchange/new_pieces.hpp"

#include <algorithm>
#include <utility>

#include "exchange/bundle_listing.hpp"

namespace rapidsmpf::exchange {

namespace {

std::shared_ptr<Payload> payload_for_peer(
    OperationState const& state, PackedData chunk, std::uint64_t sequence) {
    auto const next_use = NewPieces::next_use_in_outbox(sequence, chunk.data->size());
    auto payload = std::make_shared<Payload>(std::move(chunk), next_use, state.waker);
    payload->destinations = 1;
    return payload;
}

}  // namespace

NewPieces::NewPieces(
    OperationState const& state, std::vector<std::pair<PartitionId, PackedData>> chunks,
    std::uint64_t sequence) {
    auto& statistics = *state.br->statistics();
    for (auto& [owner, bundle] : state.bundler.bundle(chunks)) {
        auto const& partitions = bundle.partitions;
        statistics.add(state.payload_send, static_cast<double>(bundle.data_bytes));
        partitions_.insert(partitions_.end(), partitions.begin(), partitions.end());
        if (owner == state.rank) {
            state.unpacker.unpack_bundle(owner, partitions.size(), std::move(bundle.packed), own_);
        } else {
            auto payload = payload_for_peer(state, std::move(bundle.packed), sequence);
            bundles_.push_back({owner, std::move(bundle.partitions), std::move(payload)});
        }
    }
    for (auto& [partition, chunk] : chunks) {
        if (chunk.empty()) {
            continue;
        }
        auto const owner = state.plan.owner(partition);
        statistics.add(state.payload_send, static_cast<double>(chunk.data->size()));
        partitions_.push_back(partition);
        if (owner == state.rank) {
            auto payload = std::make_shared<Payload>(std::move(chunk), state.unpacker.next_use(partition));
            state.unpacker.keep(owner, partition, 0, std::move(payload), own_);
        } else {
            singles_.push_back({owner, partition, payload_for_peer(state, std::move(chunk), sequence)});
        }
    }
}

void NewPieces::insert_into(OperationState& state) {
    auto& inserted = state.inserted;
    auto& store = state.store;
    for (auto const& arrival : own_) {
        arrival.for_each_chunk([&](PartitionId partition, StoredChunk chunk) {
            state.mutex.assert_held();
            chunk.sequence = inserted.number(partition);
            store.add(partition, std::move(chunk));
        });
    }
    for (auto& [owner, partitions, payload] : bundles_) {
        for (std::size_t i = 0; i < partitions.size(); ++i) {
            set_bundle_sequence(payload->metadata, i, inserted.number(partitions[i]));
        }
        inserted.push(owner, OutgoingPiece{PieceId::bundle_of(partitions.size()), std::move(payload)});
    }
    for (auto& [owner, partition, payload] : singles_) {
        inserted.push(owner, OutgoingPiece{{partition, inserted.number(partition)}, std::move(payload)});
    }
}

SpillableBuffer::NextUse NewPieces::next_use_in_outbox(std::uint64_t sequence, std::size_t size) noexcept {
    // Small ones that go soon after each other are equals: to sort them would cost more than it is worth.
    constexpr std::size_t small = std::size_t{256} << 10U;
    constexpr std::uint64_t together = 64;
    return std::min(
        size < small ? sequence / together * together : sequence, PieceUnpacker::first_in_store - 1);
}

}  // namespace rapidsmpf::exchange

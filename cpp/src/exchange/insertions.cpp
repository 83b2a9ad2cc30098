#include "exchange/insertions.hpp"

#include <algorithm>
#include <utility>

namespace rapidsmpf::exchange {

Insertions::Insertions(Operation::Plan const& plan, Rank rank, Rank nranks)
    : plan_{plan},
      rank_{rank},
      peers_(static_cast<std::size_t>(nranks)),
      counts_(plan.total, 0),
      finished_(plan.total, false),
      unfinished_{plan.total} {
    for (PartitionId partition = 0; partition < plan.total; ++partition) {
        ++owner_of(partition).unfinished;
    }
}

Insertions::Peer& Insertions::owner_of(PartitionId partition) {
    return peers_[static_cast<std::size_t>(plan_.owner(partition))];
}

void Insertions::count_for_all() {
    for (auto& count : counts_) {
        ++count;
    }
}

void Insertions::push(Rank peer, OutgoingPiece piece) {
    auto& to = peers_[static_cast<std::size_t>(peer)];
    to.bytes += piece.payload->size;
    to.chunks += piece.id.chunks();
    to.pieces.push_back(std::move(piece));
    is_empty_ = false;
}

void Insertions::finish(PartitionId partition) {
    finished_[partition] = true;
    --unfinished_;
    auto& owner = owner_of(partition);
    --owner.unfinished;
    if (plan_.owner(partition) != rank_) {
        owner.counts.emplace_back(partition, counts_[partition]);
        is_empty_ = false;
    }
}

bool Insertions::may_wait() const noexcept {
    return plan_.coalescing == Operation::Coalescing::yes && unfinished_ > 0;
}

bool Insertions::is_corked(Peer const& peer) const {
    return deadline_ && peer.unfinished > 0 && peer.counts.empty() && peer.bytes < plan_.settings.flush_bytes;
}

bool Insertions::must_flush(std::int64_t available) {
    if (is_empty_ || !may_wait()) {
        return !is_empty_;
    }
    auto const bytes = plan_.settings.flush_bytes;
    if (deadline_ && available < static_cast<std::int64_t>(bytes * peers_.size())) {
        deadline_.reset();  // what has left needs no memory
    }
    bool const due = !deadline_ || Clock::now() >= *deadline_;
    return due || std::any_of(peers_.begin(), peers_.end(), [&](Peer const& peer) {
               return peer.bytes >= bytes;
           });
}

std::vector<Insertions::Batch> Insertions::take() {
    bool const waits = may_wait();
    auto const now = waits ? Clock::now() : Clock::time_point{};
    if (!waits || (deadline_ && now >= *deadline_)) {
        deadline_.reset();
    }
    std::vector<Batch> batches;
    if (is_empty_) {
        return batches;
    }
    bool const due = !deadline_;
    bool flushed = false;
    is_empty_ = true;
    for (Rank rank = 0; rank < static_cast<Rank>(peers_.size()); ++rank) {
        auto& peer = peers_[static_cast<std::size_t>(rank)];
        if (peer.empty()) {
            continue;
        }
        if (is_corked(peer)) {
            is_empty_ = false;
            continue;
        }
        flushed = flushed || !peer.pieces.empty();
        batches.push_back(
            {rank, std::exchange(peer.pieces, {}), std::exchange(peer.chunks, 0),
             std::exchange(peer.counts, {})});
        peer.bytes = 0;
    }
    if (waits && due && flushed) {
        deadline_ = now + plan_.settings.flush_delay;
    }
    return batches;
}

void Insertions::clear() {
    for (auto& peer : peers_) {
        peer.pieces.clear();
        peer.bytes = 0;
        peer.chunks = 0;
        peer.counts.clear();
    }
    is_empty_ = true;
    deadline_.reset();
}

}  // namespace rapidsmpf::exchange

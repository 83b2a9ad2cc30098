#include <rapidsmpf/exchange/partition_store.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

void PartitionStore::Piece::prefetch_far() const noexcept {
    if (bundle) {
        bundle->prefetch(index_in_bundle);
    } else {
        __builtin_prefetch(payload.get());
    }
}

void PartitionStore::Piece::prefetch_near() const noexcept {
    if (bundle) {
        bundle->prefetch_bytes(index_in_bundle);
    } else {
        payload->data.prefetch();
    }
}

PartitionStore::PartitionStore(std::vector<PartitionId> local, Rank nranks)
    : local_{std::move(local)},
      nranks_{static_cast<std::size_t>(nranks)},
      entries_(local_.size()),
      sources_(local_.size() * nranks_),
      open_partitions_(nranks_, local_.size()) {
    for (auto& entry : entries_) {
        entry.open_sources = nranks_;
    }
}

std::optional<PartitionStore::Index> PartitionStore::find(PartitionId partition) const {
    if (local_.empty() || partition < local_.front() || partition > local_.back()) {
        return std::nullopt;
    }
    // Partitions are dealt out in turn or in blocks, so mostly they are evenly spaced.
    auto const span = std::uint64_t{local_.back()} - local_.front();
    auto const guess = span == 0 ? 0 : std::uint64_t{partition - local_.front()} * (local_.size() - 1) / span;
    if (local_[guess] == partition) {
        return guess;
    }
    auto const found = std::lower_bound(local_.begin(), local_.end(), partition);
    if (found == local_.end() || *found != partition) {
        return std::nullopt;
    }
    return static_cast<Index>(found - local_.begin());
}

PartitionStore::Index PartitionStore::require(PartitionId partition) const {
    auto const index = find(partition);
    RAPIDSMPF_EXPECTS(
        index.has_value(), "partition " + std::to_string(partition) + " is not one of this rank's",
        FormatError);
    return *index;
}

void PartitionStore::add(PartitionId partition, Piece piece) {
    auto const index = require(partition);
    auto const rank = piece.source;
    auto& from = source(index, rank);
    RAPIDSMPF_EXPECTS(
        !from.done(), "more chunks for partition " + std::to_string(partition) + " than were announced",
        FormatError);
    ++from.received;
    if (!discard_) {
        entries_[index].pieces.push_back(std::move(piece));
    }
    close_if_done(index, rank);
}

void PartitionStore::announce(PartitionId partition, Rank rank, std::uint64_t chunks) {
    auto const index = require(partition);
    auto& from = source(index, rank);
    RAPIDSMPF_EXPECTS(
        !from.expected, "partition " + std::to_string(partition) + " was finished twice", FormatError);
    RAPIDSMPF_EXPECTS(
        from.received <= chunks,
        "more chunks for partition " + std::to_string(partition) + " than were announced", FormatError);
    from.expected = chunks;
    close_if_done(index, rank);
}

void PartitionStore::close_if_done(Index index, Rank rank) {
    if (!source(index, rank).done()) {
        return;
    }
    --open_partitions_[static_cast<std::size_t>(rank)];
    if (--entries_[index].open_sources == 0) {
        ++complete_;
        ready_.push_back(index);
        completed_.push_back(local_[index]);
    }
}

bool PartitionStore::all_announced(Rank rank) const {
    for (Index index = 0; index < entries_.size(); ++index) {
        if (!source(index, rank).expected) {
            return false;
        }
    }
    return true;
}

void PartitionStore::take(Index index) {
    if (!std::exchange(entries_[index].taken, true)) {
        ++taken_;
    }
}

std::optional<PartitionStore::Index> PartitionStore::first_ready() {
    while (!ready_.empty() && entries_[ready_.front()].taken) {
        ready_.pop_front();
    }
    if (ready_.empty()) {
        return std::nullopt;
    }
    return ready_.front();
}

std::vector<std::uint64_t> PartitionStore::received(Index index) const {
    std::vector<std::uint64_t> chunks(nranks_);
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
        chunks[rank] = source(index, static_cast<Rank>(rank)).received;
    }
    return chunks;
}

std::vector<PartitionStore::Piece> PartitionStore::extract(Index index, std::optional<Rank> source) {
    if (source) {
        auto& pieces = entries_[index].pieces;
        auto const others = std::stable_partition(
            pieces.begin(), pieces.end(), [&](Piece const& piece) { return piece.source != *source; });
        std::vector<Piece> found(std::make_move_iterator(others), std::make_move_iterator(pieces.end()));
        pieces.erase(others, pieces.end());
        return found;
    }
    if (is_complete(index) && !std::exchange(entries_[index].extracted, true)) {
        ++extracted_;
    }
    return std::exchange(entries_[index].pieces, {});
}

void PartitionStore::discard() {
    discard_ = true;
    for (auto& entry : entries_) {
        entry.pieces.clear();
    }
}

std::string PartitionStore::describe_missing(Index index) const {
    std::string text = "partition " + std::to_string(local_[index]) + ": ";
    bool first = true;
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
        auto const& from = source(index, static_cast<Rank>(rank));
        if (from.done()) {
            continue;
        }
        text += first ? "" : ", ";
        first = false;
        if (from.expected) {
            text += std::to_string(from.received) + " of " + std::to_string(*from.expected)
                    + " chunks of rank " + std::to_string(rank) + " have come";
        } else {
            text += "rank " + std::to_string(rank) + " has not finished it (" + std::to_string(from.received)
                    + " chunks so far)";
        }
    }
    return first ? text + "complete" : text;
}

std::string PartitionStore::describe_missing() const {
    constexpr std::size_t most = 4;
    std::string text;
    std::size_t shown = 0;
    for (Index index = 0; index < entries_.size() && shown < most; ++index) {
        if (!is_complete(index)) {
            text += (shown++ == 0 ? "" : "; ") + describe_missing(index);
        }
    }
    auto const left = entries_.size() - complete_ - shown;
    if (left > 0) {
        text += "; and " + std::to_string(left) + " partitions more";
    }
    std::string ranks;
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
        if (open_partitions_[rank] > 0) {
            ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    return text + " [ranks still to finish: " + ranks + "]";
}

}  // namespace rapidsmpf::exchange

#include "exchange/partition_store.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

void PartitionStore::sort(std::vector<StoredChunk>& pieces) {
    auto const is_before = [](StoredChunk const& a, StoredChunk const& b) {
        return std::tie(a.source, a.sequence) < std::tie(b.source, b.sequence);
    };
    if (std::is_sorted(pieces.begin(), pieces.end(), is_before)) {
        return;
    }
    // What comes from one rank mostly comes in order: then to tell the sources apart is all that is to be done.
    std::vector<std::size_t> ends;
    for (auto const& piece : pieces) {
        auto const source = static_cast<std::size_t>(piece.source);
        if (ends.size() <= source) {
            ends.resize(source + 1, 0);
        }
        ++ends[source];
    }
    std::inclusive_scan(ends.begin(), ends.end(), ends.begin());
    std::vector<std::size_t> order(pieces.size());
    for (auto i = pieces.size(); i-- > 0;) {
        order[--ends[static_cast<std::size_t>(pieces[i].source)]] = i;
    }
    std::vector<StoredChunk> sorted;
    sorted.reserve(pieces.size());
    for (auto const i : order) {
        sorted.push_back(std::move(pieces[i]));
    }
    if (!std::is_sorted(sorted.begin(), sorted.end(), is_before)) {
        std::stable_sort(sorted.begin(), sorted.end(), is_before);
    }
    pieces = std::move(sorted);
}

namespace {

// The pieces have lain here for long: what is needed of them is loaded while others are taken out.
void prefetch(std::span<StoredChunk const> group, std::span<StoredChunk const> next_group) noexcept {
    constexpr std::size_t line = 64;
    constexpr std::size_t most = 8 * line;
    for (auto const& piece : next_group) {
        auto const* const owner = piece.bundle ? reinterpret_cast<std::byte const*>(piece.bundle.get())
                                               : reinterpret_cast<std::byte const*>(piece.payload.get());
        prefetch_to_read(owner);
        prefetch_to_read(owner + line);
    }
    for (auto const& piece : group) {
        if (piece.payload) {
            piece.payload->data.prefetch();
        }
        for (std::size_t at = 0; at < std::min(piece.metadata.size(), most); at += line) {
            prefetch_to_read(piece.metadata.data() + at);
        }
    }
}

}  // namespace

std::vector<PackedData> PartitionStore::release(std::span<StoredChunk const> pieces) {
    constexpr std::size_t at_once = 16;
    std::vector<PackedData> chunks;
    chunks.reserve(pieces.size());
    std::vector<SpillableParts::PartHandle> wanted;
    for (std::size_t begin = 0; begin < pieces.size(); begin += at_once) {
        auto const rest = pieces.subspan(begin);
        auto const group = rest.first(std::min(at_once, rest.size()));
        auto const next_group = rest.subspan(group.size());
        prefetch(group, next_group.first(std::min(at_once, next_group.size())));
        wanted.clear();
        for (auto const& piece : group) {
            if (piece.bundle) {
                wanted.push_back(piece.data);
            }
        }
        auto taken = SpillableParts::take_all(wanted);
        auto next = taken.begin();
        for (auto const& piece : group) {
            if (piece.bundle) {
                chunks.emplace_back(
                    std::vector<std::uint8_t>{piece.metadata.begin(), piece.metadata.end()},
                    std::move(*next++));
            } else {
                chunks.push_back(piece.payload->release());
            }
        }
    }
    return chunks;
}

PartitionStore::PartitionStore(std::vector<PartitionId> local, Rank nranks)
    : local_{std::move(local)},
      nranks_{static_cast<std::size_t>(nranks)},
      entries_(local_.ids().size()),
      sources_(local_.ids().size() * nranks_),
      open_partitions_(nranks_, local_.ids().size()) {
    for (auto& entry : entries_) {
        entry.open_sources = nranks_;
    }
}

PartitionStore::Index PartitionStore::require(PartitionId partition) const {
    auto const index = find(partition);
    RAPIDSMPF_EXPECTS(
        index.has_value(), "partition " + std::to_string(partition) + " is not one of this rank's",
        FormatError);
    return *index;
}

void PartitionStore::add(PartitionId partition, StoredChunk piece) {
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
        completed_.push_back(local_.ids()[index]);
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

std::vector<StoredChunk> PartitionStore::extract(Index index, std::optional<Rank> source) {
    if (source) {
        auto& pieces = entries_[index].pieces;
        auto const others = std::stable_partition(
            pieces.begin(), pieces.end(), [&](StoredChunk const& piece) { return piece.source != *source; });
        std::vector<StoredChunk> found(
            std::make_move_iterator(others), std::make_move_iterator(pieces.end()));
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
    std::string text = "partition " + std::to_string(local_.ids()[index]) + ": ";
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

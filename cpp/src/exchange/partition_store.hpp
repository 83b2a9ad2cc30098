// What has arrived at this rank: the chunks of its own partitions, and how many are still to come from whom.
//
// Not thread-safe: the mutex of OperationState guards it. What comes from other ranks is checked, and FormatError
// says what is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange/bundle.hpp"
#include "exchange/local_partitions.hpp"
#include "exchange/payload.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// A chunk that has arrived: by itself, or as one of a bundle. A chunk of a bundle has direct pointers to its metadata and data,
// so that extracting many chunks can prefetch all of them at once.
struct StoredChunk {
    StoredChunk(Rank source_, std::uint64_t sequence_, std::shared_ptr<Payload> payload_)
        : source{source_}, sequence{sequence_}, payload{std::move(payload_)} {}
    StoredChunk(Rank source_, std::uint64_t sequence_, std::shared_ptr<Bundle> bundle_, std::size_t index)
        : source{source_},
          sequence{sequence_},
          bundle{std::move(bundle_)},
          metadata{bundle->metadata(index)},
          data{bundle->data(index)} {}

    Rank source;
    std::uint64_t sequence;
    std::shared_ptr<Payload> payload;  // null: in a bundle
    std::shared_ptr<Bundle> bundle;
    std::span<std::uint8_t const> metadata;  // points into the bundle; empty without one
    SpillableParts::PartHandle data;         // likewise
};

class PartitionStore {
  public:
    // Brings pieces into the order of their sources and numbers.
    static void sort(std::vector<StoredChunk>& pieces);
    // The chunks of pieces that have been extracted. Waits for moves of their data to end; it may be on disk.
    [[nodiscard]] static std::vector<PackedData> release(std::span<StoredChunk const> pieces);

    using Index = LocalPartitions::Index;

    // `local`: the partitions of this rank, ascending.
    PartitionStore(std::vector<PartitionId> local, Rank nranks);

    [[nodiscard]] std::vector<PartitionId> const& local() const noexcept { return local_.ids(); }
    [[nodiscard]] std::optional<Index> find(PartitionId partition) const { return local_.find(partition); }

    // A chunk has come whole.
    void add(PartitionId partition, StoredChunk piece);
    // `source` has inserted `chunks` and will insert no more.
    void announce(PartitionId partition, Rank source, std::uint64_t chunks);

    [[nodiscard]] bool is_complete(Index index) const { return entries_[index].open_sources == 0; }
    [[nodiscard]] bool all_complete() const noexcept { return complete_ == entries_.size(); }
    // Whether all that `source` will ever insert has come.
    [[nodiscard]] bool drained(Rank source) const {
        return open_partitions_[static_cast<std::size_t>(source)] == 0;
    }

    // Whether `source` has said of every partition how many chunks it has inserted.
    [[nodiscard]] bool all_announced(Rank source) const;

    // A partition is waited for once: marks it.
    [[nodiscard]] bool is_taken(Index index) const { return entries_[index].taken; }
    void take(Index index);
    [[nodiscard]] bool all_taken() const noexcept { return taken_ == entries_.size(); }
    // Of the complete partitions that no thread has waited for, the first to be complete.
    [[nodiscard]] std::optional<Index> first_ready();

    // Takes out what is there, of one source or of all.
    [[nodiscard]] std::vector<StoredChunk> extract(Index index, std::optional<Rank> source = {});
    // Chunks that have come, by rank.
    [[nodiscard]] std::vector<std::uint64_t> received(Index index) const;
    // The partitions that have become complete since the last call.
    [[nodiscard]] std::vector<PartitionId> take_completed() { return std::exchange(completed_, {}); }
    [[nodiscard]] bool all_extracted() const noexcept { return extracted_ == entries_.size(); }

    // From now on drops chunks as they come, and those that are there.
    void discard();

    // "partition 3: rank 1 has not finished it (2 chunks so far), 4 of 5 chunks of rank 2 have come".
    [[nodiscard]] std::string describe_missing(Index index) const;
    // The same for all incomplete ones, shortened.
    [[nodiscard]] std::string describe_missing() const;

  private:
    struct Source {
        std::uint64_t received{0};
        std::optional<std::uint64_t> expected;
        [[nodiscard]] bool done() const noexcept { return expected && *expected == received; }
    };
    struct Entry {
        std::vector<StoredChunk> pieces;
        std::size_t open_sources{0};
        bool taken{false};
        bool extracted{false};  // after it was complete
    };
    [[nodiscard]] Index require(PartitionId partition) const;
    [[nodiscard]] Source& source(Index index, Rank rank) {
        return sources_[index * nranks_ + static_cast<std::size_t>(rank)];
    }
    [[nodiscard]] Source const& source(Index index, Rank rank) const {
        return sources_[index * nranks_ + static_cast<std::size_t>(rank)];
    }
    void close_if_done(Index index, Rank rank);

    LocalPartitions local_;
    std::size_t nranks_;
    std::vector<Entry> entries_;
    std::vector<Source> sources_;               // by (index, rank)
    std::vector<std::size_t> open_partitions_;  // by rank
    std::deque<Index> ready_;
    std::vector<PartitionId> completed_;
    std::size_t complete_{0};
    std::size_t taken_{0};
    std::size_t extracted_{0};
    bool discard_{false};
};

}  // namespace rapidsmpf::exchange

// What this rank has inserted: how many chunks into which partition, which partitions are finished, and what the progress
// thread has still to take.
//
// Coalescing. Where an operation may wait for more (Operation::Coalescing), the progress thread is given what is for a peer
// when there is much of it, when the peer gets counts, or some time after it was given something the last time.
//
// Not thread-safe: the mutex of OperationState guards it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/progress_thread.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

#include "exchange/outbox.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class Insertions {
  public:
    using Clock = ProgressThread::Clock;
    // What is for one peer.
    struct Batch {
        Rank peer{0};
        std::vector<OutgoingPiece> pieces;
        std::uint64_t chunks{0};  // of pieces
        std::vector<PartitionCount> counts;
    };

    // The plan must outlive it.
    Insertions(Operation::Plan const& plan, Rank rank, Rank nranks);

    // Chunks inserted so far.
    [[nodiscard]] std::uint64_t count(PartitionId partition) const { return counts_[partition]; }
    // The sequence number of the next chunk; counts it.
    [[nodiscard]] std::uint64_t number(PartitionId partition) { return counts_[partition]++; }
    // Counts a chunk for every partition.
    void count_for_all();

    // For a rank other than this one.
    void push(Rank peer, OutgoingPiece piece);
    // Nothing more will be inserted. The owner is told, unless it is this rank.
    void finish(PartitionId partition);
    [[nodiscard]] bool is_finished(PartitionId partition) const { return finished_[partition]; }
    [[nodiscard]] bool all_finished() const noexcept { return unfinished_ == 0; }
    // All partitions of a rank.
    [[nodiscard]] bool all_finished(Rank owner) const {
        return peers_[static_cast<std::size_t>(owner)].unfinished == 0;
    }

    // Whether the progress thread has to take something now, given `available` bytes of memory.
    [[nodiscard]] bool must_flush(std::int64_t available);
    // On the progress thread: what may not wait. The rest is due at deadline().
    [[nodiscard]] std::vector<Batch> take();
    [[nodiscard]] std::optional<Clock::time_point> deadline() const noexcept { return deadline_; }
    // Chunks for a peer that were not taken.
    [[nodiscard]] std::uint64_t backlog(Rank peer) const {
        return peers_[static_cast<std::size_t>(peer)].chunks;
    }
    // Forgets what was not taken.
    void clear();

  private:
    struct Peer {
        std::vector<OutgoingPiece> pieces;
        std::uint64_t bytes{0};   // of pieces
        std::uint64_t chunks{0};  // likewise
        std::vector<PartitionCount> counts;
        std::size_t unfinished{0};  // partitions
        [[nodiscard]] bool empty() const noexcept { return pieces.empty() && counts.empty(); }
    };
    [[nodiscard]] bool may_wait() const noexcept;
    // Whether a peer need not hear yet of what was inserted for it.
    [[nodiscard]] bool is_corked(Peer const& peer) const;
    [[nodiscard]] Peer& owner_of(PartitionId partition);

    Operation::Plan const& plan_;
    Rank rank_;
    std::vector<Peer> peers_;            // by rank
    std::vector<std::uint64_t> counts_;  // by partition
    std::vector<bool> finished_;         // by partition
    std::size_t unfinished_;
    bool is_empty_{true};  // nothing to take
    // Coalescing: until then the progress thread takes only what there is much of. Set when it takes something.
    std::optional<Clock::time_point> deadline_;
};

}  // namespace rapidsmpf::exchange

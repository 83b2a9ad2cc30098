// One collective operation on one rank: moves chunks between the ranks, by partition, and knows when a
// partition is complete. What the chunks mean, and who wants them, is the business of coll/.
//
// How a chunk travels, from rank A to rank B (wire.hpp has the messages):
//   1. insert() gives it a sequence number and puts it into A's outbox for B; small ones of one call as a bundle.
//   2. On its next tick A sends B one control message with everything it has for it. Small chunks travel in it
//      as long as A's eager credit lasts; others are announced in frames: sizes and metadata only.
//   3. B queues the frame. When the receive budget has room B allocates memory for it in the best tier that
//      has room, and grants the frame. Until then A's chunks may be spilled.
//   4. The payload travels by the transport that the two ranks use (transport.hpp): A writes it to where B granted
//      it and says so; or it sends messages, the small chunks of the frame gathered in one.
//   5. B puts the chunks into its store, where they may be spilled, and gives the budget back. It does not wait
//      for anyone to extract them: so no rank's progress depends on what a user does, and nothing deadlocks.
// insert_finished() sends the number of chunks of each partition: B knows when it has them all.
//
// Closing. A's last message to B (`final`) follows when A has sent B everything and B's chunks for A have all
// come. When an operation has sent and received all last messages it is closed, and the dispatcher drops it. An
// operation that is abandoned (its handle was destroyed early, an exception inside it) sends a last message
// that says so: the other ranks' operations raise that and pass it on, so every rank ends, and every id is free.
//
// A rank that closes its communicator in good order has sent all that its finished operations held. Who still
// lacks something of it then (it never began the operation) raises RankFailedError, and passes that on in the same
// way. What others still had for it is dropped: it does not want it any more.
//
// Memory. Chunks are SpillableBuffers: the arbiter of the buffer resource moves them down, to disk in the end,
// while they wait to be sent or to be extracted. A frame is granted when there is memory for it; when there is
// none it waits in line while others' chunks are spilled. Who inserts waits, too, while memory is overbooked.
//
// Threading: one mutex guards the whole. User threads insert, wait and extract; the progress thread calls
// tick() and receive() through the dispatcher; the arbiter calls moved(). No call out of this class is made
// under the mutex that may come back into it: not one that waits for memory, not Communicator::fail().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/bundle.hpp"
#include "exchange/fair_mutex.hpp"
#include "exchange/inbox.hpp"
#include "exchange/outbox.hpp"
#include "exchange/partition_store.hpp"
#include "exchange/receive_budget.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class OperationDispatcher;

class Operation final : public std::enable_shared_from_this<Operation>, public MoveListener {
  public:
    using Timeout = std::optional<std::chrono::milliseconds>;

    // Whether what was inserted may wait a moment for more, so that many chunks cost the progress threads no more than one.
    // For those who insert many, and whom nobody waits for before they have finished.
    enum class Coalescing : std::uint8_t { no, yes };

    struct Plan {
        Plan() {}          // user-written: travels through coroutines, not an aggregate
        std::string kind;  // for people and statistics: "shuffle", "allgather"
        OpId op{0};
        PartitionId total{0};
        std::function<Rank(PartitionId)> owner;
        Coalescing coalescing{Coalescing::no};
        // If set, called once for each partition of this rank when it is complete: on the progress thread, without
        // the lock, not after release() has begun. It may insert and extract. What it throws fails the operation.
        std::function<void(Operation&, PartitionId)> completed;
        Settings settings;
    };
    // A chunk as it is extracted.
    struct Chunk {
        Chunk(Rank source_, std::uint64_t sequence_, PackedData data_)
            : source{source_}, sequence{sequence_}, data{std::move(data_)} {}
        Rank source;
        std::uint64_t sequence;
        PackedData data;
    };

    // Claims the operation id and begins. What is returned is the user's handle: when its last copy goes, the operation is
    // released, also out of a constructor that throws. The communicator must live until then. Throws
    // std::invalid_argument, RankFailedError.
    [[nodiscard]] static std::shared_ptr<Operation> open(
        Communicator& comm, std::shared_ptr<BufferResource> br, Plan plan);
    Operation(
        Communicator& comm, OperationDispatcher& dispatcher, std::shared_ptr<BufferResource> br, Plan plan);
    Operation(Operation const&) = delete;
    Operation& operator=(Operation const&) = delete;

    // Chunks for partitions, one for each at most. Throws std::out_of_range, std::logic_error as Shuffler::insert().
    void insert(std::vector<std::pair<PartitionId, PackedData>> chunks);
    // One chunk for the one partition that each rank owns, with the caller's sequence number.
    void insert_for_all(std::uint64_t sequence, PackedData chunk);
    void insert_finished(std::vector<PartitionId> const& partitions);
    void insert_finished();
    [[nodiscard]] bool all_inserted() const;

    [[nodiscard]] PartitionId wait_any(Timeout timeout);
    void wait_on(PartitionId partition, Timeout timeout);
    // Waits without marking the partition as waited for.
    void wait_complete(PartitionId partition, Timeout timeout);
    // The same without a thread that waits: `told` is called once, when wait_complete() (wait_any()) would not wait any more,
    // be it for an error; at once if that is so. On any thread, under the lock of this operation: it must only wake somebody.
    void tell_when_complete(PartitionId partition, std::function<void()> told);
    void tell_when_any(std::function<void()> told);
    // What is there (of one source, or of all), by (source, sequence).
    [[nodiscard]] std::vector<Chunk> extract(PartitionId partition, std::optional<Rank> source = {});
    // How many chunks have come from each rank so far.
    [[nodiscard]] std::vector<std::uint64_t> received(PartitionId partition) const;
    [[nodiscard]] bool all_complete() const;
    [[nodiscard]] bool all_extracted() const;
    [[nodiscard]] std::vector<PartitionId> const& local_partitions() const noexcept
        RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS {  // constant once made
        return store_.local();
    }
    [[nodiscard]] std::string str() const;

    // Moves data that waits, here or elsewhere in the buffer resource, from DEVICE to a lower tier until `amount`
    // bytes are freed; returns how many were.
    std::size_t spill(std::size_t amount);

    // See Shuffler::shutdown().
    void shutdown(Timeout timeout);
    // What the end of the handle does, for those that do it earlier: lets the operation end by itself, or abandons it. Never
    // blocks on other ranks. Only the first call counts.
    void release() noexcept;
    // The id may be used by another operation from now on; release() implies it. Only for what is complete.
    void release_id() noexcept;
    // Every later call here and on the other ranks raises `reason`.
    void abandon(std::string const& reason);
    // The same for an operation of a range that was given up. Finished operations are left alone.
    void abandon(AbandonedRange const& range);

    // For the dispatcher, on the progress thread.
    struct Tick {
        bool did_something{false};
        bool in_flight{false};
        bool closed{false};
        bool relaxed{false};  // it waits for more to be inserted, and is in no hurry for what others send
        std::optional<ProgressThread::Clock::time_point> look_again;
    };
    [[nodiscard]] Tick tick();
    // A control message of `source`; a malformed one fails the communicator in its name.
    void receive(Rank source, std::vector<std::uint8_t> const& bytes);
    // Whether `source` has sent its last message: what follows belongs to another operation.
    [[nodiscard]] bool final_received(Rank source) const;
    [[nodiscard]] OpId op() const noexcept { return plan_.op; }
    // `source` has closed its communicator; all that it sent has been received here.
    void on_peer_closed(Rank source);
    // Before the communicator closes: asks for nothing more from other ranks.
    void stop_granting();
    // Whether nothing that was inserted is still to be sent (or never will be), and nothing that was asked for is
    // still to come.
    [[nodiscard]] bool flushed() const;
    // The communicator has failed: stores the error; the next tick drops what the transport knows of.
    void cut_off(RankFailure const& failure);
    // The dispatcher goes, and there are no more ticks: the same at once. Somebody who was told of a move of memory may hold the
    // operation for a moment longer than the dispatcher lives, so nothing of the dispatcher's may be left in it.
    void detach(RankFailure const& failure);
    // A chunk that somebody wanted to send has been spilled or read back.
    void moved() noexcept override;

  private:
    struct Peer {
        Peer(Rank rank_, Settings const& settings) : rank{rank_}, outbox{settings}, inbox{rank_} {}
        Rank rank;
        Outbox outbox;
        Inbox inbox;
        std::size_t unfinished{0};  // partitions of the peer that this rank has not finished
        bool final_sent{false};
        bool closed{false};  // has closed its communicator
    };
    struct WaitingFrame {
        WaitingFrame(Rank source_, AnnouncedFrame frame_) : source{source_}, frame{std::move(frame_)} {}
        Rank source;
        AnnouncedFrame frame;
        std::shared_ptr<MemoryRequest> memory;  // once it had to wait for memory
        std::optional<ScopedTimer> wait;        // until it is granted
    };
    // Statistics; core/statistic_names.hpp says what they mean.
    struct Ids {
        Ids(Statistics& statistics, std::string const& kind);
        Statistics::Id payload_send;
        Statistics::Id payload_recv;
        Statistics::Id recv_to_host;
        Statistics::Id control_bytes;
        Statistics::Id grant_wait;
        Statistics::Id loop_total;
        Statistics::Id metadata_send;
        Statistics::Id metadata_recv;
        Statistics::Id post_receives;
        Statistics::Id start_sends;
        Statistics::Id check_finished;
    };
    // Small chunks for one rank, before they have their numbers.
    struct OwnedBundle {
        Rank owner;
        NewBundle content;
    };
    // In the order of next use what waits in the outboxes comes before what waits in the store.
    static constexpr SpillableBuffer::NextUse first_in_store{std::uint64_t{1} << 32U};

    [[nodiscard]] SpillableBuffer::NextUse next_use_in_outbox(
        std::uint64_t sequence, std::size_t size) const noexcept;
    [[nodiscard]] SpillableBuffer::NextUse next_use_in_store(PartitionId partition) const
        RAPIDSMPF_REQUIRES(mutex_);
    void check_usable() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] PartitionStore::Index require_local(PartitionId partition) const RAPIDSMPF_REQUIRES(mutex_);
    void check_partition(PartitionId partition) const;
    void check_insertable(PartitionId partition) const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] BundleLimits bundle_limits() const;
    // Whether two of the chunks may be part of one bundle.
    [[nodiscard]] bool any_go_together(
        std::span<std::pair<PartitionId, PackedData> const> chunks, BundleLimits const& limits) const;
    // Takes out of `chunks` those that go with others to the same rank. Called without the lock.
    [[nodiscard]] std::vector<OwnedBundle> bundle(
        std::vector<std::pair<PartitionId, PackedData>>& chunks, BundleLimits const& limits) const;
    void insert_locked(OwnedBundle bundle) RAPIDSMPF_REQUIRES(mutex_);
    void insert_locked(PartitionId partition, PackedData chunk) RAPIDSMPF_REQUIRES(mutex_);
    // Whether chunks that wait to be extracted may share a block, which is free when the last of them is: while more than half
    // of the memory is.
    [[nodiscard]] bool keeps_bundles(MemoryType type) const;
    void finish_locked(std::vector<PartitionId> const& partitions) RAPIDSMPF_REQUIRES(mutex_);
    // Waits until ready() or an error; throws TimeoutError with what() when time is up. Says now and then in the log what
    // is missing.
    void wait(
        UniqueLock& lock, Timeout timeout, std::function<bool()> const& ready,
        std::function<std::string()> const& what) RAPIDSMPF_REQUIRES(mutex_);
    // The same, for what is complete then: if a rank has failed since, that changes nothing. Else throws the error.
    void wait_for_result(
        UniqueLock& lock, Timeout timeout, std::function<bool()> const& ready,
        std::function<std::string()> const& what) RAPIDSMPF_REQUIRES(mutex_);
    // Whether results are gone, complete or not.
    [[nodiscard]] bool is_discarded() const noexcept RAPIDSMPF_REQUIRES(mutex_) {
        return abandoned_ || shut_down_;
    }
    void warn_of_stall(std::string const& missing) RAPIDSMPF_REQUIRES(mutex_);
    // Somebody who wants to be told of a partition; none: of any.
    struct Watcher {
        std::optional<PartitionStore::Index> index;
        std::function<void()> told;
    };
    void watch(Watcher watcher) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool is_over(Watcher const& watcher) RAPIDSMPF_REQUIRES(mutex_);
    // Something has changed that users may wait for.
    void changed() RAPIDSMPF_REQUIRES(mutex_);
    void wake() noexcept;
    // Whether buffered inserts must be flushed to peers now, given `available` bytes of memory.
    [[nodiscard]] bool must_flush(std::int64_t available) RAPIDSMPF_REQUIRES(mutex_);
    // Waits for memory when there is less than none.
    void make_room(std::int64_t available);

    void drive(Tick& result);
    // Lets go of what is on its way, and of the shares of the dispatcher's receive budget.
    void drop_transfers() RAPIDSMPF_REQUIRES(mutex_);
    void poll(Tick& result) RAPIDSMPF_REQUIRES(mutex_);
    bool grant_frames() RAPIDSMPF_REQUIRES(mutex_);
    void tell_completed(Tick& result);
    // Memory for the first waiting frame; nothing while it has to wait for it.
    [[nodiscard]] std::optional<MemoryReservation> memory_for(WaitingFrame& waiting)
        RAPIDSMPF_REQUIRES(mutex_);
    void compose_all(Tick& result) RAPIDSMPF_REQUIRES(mutex_);
    bool compose(Peer& peer) RAPIDSMPF_REQUIRES(mutex_);
    // Whether a peer need not hear yet of what was inserted for it.
    [[nodiscard]] bool is_corked(Peer const& to) const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Transport::PeerRoute route_to(Rank rank) const { return {rank, payload_tag_, br_}; }
    void apply(Peer& peer, Message const& message) RAPIDSMPF_REQUIRES(mutex_);
    // Runs body(): turns FormatError into the failure of the rank whose bytes were being handled (current_peer_),
    // other exceptions into an error of this operation. Called without the lock.
    void guarded(std::function<void()> const& body);
    void store(Rank source, PieceHeader const& header, PackedData chunk) RAPIDSMPF_REQUIRES(mutex_);
    // Checks that it is one and all its chunks are for this rank, and throws FormatError.
    [[nodiscard]] std::vector<BundledChunk> check_bundle(
        std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size) const
        RAPIDSMPF_REQUIRES(mutex_);
    void store_bundle(Rank source, std::uint64_t count, PackedData packed) RAPIDSMPF_REQUIRES(mutex_);
    void store_payload(
        Rank source, PartitionId partition, std::uint64_t sequence, std::shared_ptr<Payload> payload)
        RAPIDSMPF_REQUIRES(mutex_);
    void sent(std::shared_ptr<Payload> const& payload) RAPIDSMPF_REQUIRES(mutex_);
    void abandon_locked(
        Rank origin, std::string const& reason, std::exception_ptr error,
        FinalKind kind = FinalKind::abandoned) RAPIDSMPF_REQUIRES(mutex_);
    // Gives up when something will not come any more because its sender has left.
    void check_closed_peers() RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool is_closed() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool flushed_locked() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] std::string describe_backlog() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Peer& peer(Rank rank) RAPIDSMPF_REQUIRES(mutex_) {
        return peers_[static_cast<std::size_t>(rank)];
    }
    [[nodiscard]] Peer const& peer(Rank rank) const RAPIDSMPF_REQUIRES(mutex_) {
        return peers_[static_cast<std::size_t>(rank)];
    }
    // The i-th rank behind this one, round and round: so not all ranks begin with the same.
    [[nodiscard]] Peer& neighbour(std::size_t i) RAPIDSMPF_REQUIRES(mutex_) {
        return peers_[(static_cast<std::size_t>(rank_) + 1 + i) % peers_.size()];
    }

    Communicator& comm_;
    OperationDispatcher& dispatcher_;
    std::shared_ptr<ProgressThread> progress_;
    std::shared_ptr<BufferResource> br_;
    Plan const plan_;
    Tag payload_tag_;
    Rank const rank_;
    Ids const ids_;

    // User threads lock it fairly, between two rounds of the progress thread.
    mutable FairMutex mutex_;
    ConditionVariable changed_;
    std::vector<Watcher> watchers_ RAPIDSMPF_GUARDED_BY(mutex_);
    PartitionStore store_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<Peer> peers_ RAPIDSMPF_GUARDED_BY(mutex_);  // by rank; the own entry is not used
    std::deque<WaitingFrame> frames_ RAPIDSMPF_GUARDED_BY(mutex_);
    // By partition: chunks this rank has inserted.
    std::vector<std::uint64_t> counts_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<bool> finished_ RAPIDSMPF_GUARDED_BY(mutex_);  // by partition: by this rank
    std::size_t unfinished_ RAPIDSMPF_GUARDED_BY(mutex_);
    // A wait that takes long. One that is cut into slices is one wait.
    struct Stall {
        explicit Stall(std::chrono::steady_clock::time_point now)
            : begin{now}, last{now}, next_look{now + first_look} {}
        static constexpr std::chrono::seconds first_look{
            1};  // at the options; until then a wait costs nothing
        static constexpr std::chrono::seconds longest_break{1};
        std::chrono::steady_clock::time_point begin;
        std::chrono::steady_clock::time_point last;
        std::chrono::steady_clock::time_point next_look;
    };
    std::optional<Stall> stall_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool shut_down_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool cut_off_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    // The first frame does, and says when it has it.
    bool waits_for_memory_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool no_grants_ RAPIDSMPF_GUARDED_BY(mutex_){false};  // the communicator closes
    bool blocked_ RAPIDSMPF_GUARDED_BY(mutex_){false};    // a piece waits for a write in flight
    // Coalescing: until then peers hear only of what there is much of. Set when they hear of something.
    std::optional<ProgressThread::Clock::time_point> flush_deadline_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::optional<RankFailure> failure_ RAPIDSMPF_GUARDED_BY(mutex_);
    // What the last messages say; the operation has failed.
    std::optional<Final> abandoned_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);  // why, if it was an exception here

    // Touched by the progress thread only: what the last look said, and whose bytes are being handled.
    bool active_{false};  // something is in flight: tick() must look even if nobody said so
    Rank current_peer_{0};
    std::optional<ProgressThread::Clock::time_point> look_again_;
    bool relaxed_{false};

    std::atomic<bool> dirty_{true};  // tick() has something to look at
    std::atomic<bool> released_{false};
    std::atomic<bool> id_released_{false};
};

}  // namespace rapidsmpf::exchange

// Takes in the control messages of all operations of a communicator, hands each to the operation that it belongs to, and
// drives the operations from the progress thread.
//
// A message may come before its operation exists here: it waits in the dispatcher. An operation stays here after its
// handle is gone, until both ends of every pair have sent their last message; what a peer sends after its
// last message belongs to the next operation with the same id, and waits for that one to begin.
//
// The dispatcher of a communicator that closes gracefully says goodbye to every rank, behind all its other messages. A rank
// that has read it knows that nothing of the other is on its way any more, and that operations that lack something of it
// fail. (A rank that never had a dispatcher says nothing: then the communicator's news that it has closed counts, some
// time after it came.)
//
// A rank can abandon a range of operation ids (those of a query that failed there), whether anyone has begun them
// or not: the dispatcher tells all others. Operations of the range that are not closed end everywhere with
// RankFailedError, later ones cannot be opened, and for those that only others have begun a RejectedOperation stands in.
// The communicator goes on.
//
// Ownership: the communicator keeps the dispatcher (Communicator::attached), the dispatcher keeps the operations' cores. A single
// tag carries the control messages of all operations, so an idle tick is one look at the transport.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/core/progress_thread.hpp>

#include "exchange/receive_budget.hpp"
#include "exchange/rejected_operation.hpp"
#include "exchange/transport_selector.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class OperationCore;
struct OperationState;

class OperationDispatcher {
  public:
    // Control messages travel under this operation id, so no operation may have it.
    static constexpr OpId control_op = Tag::max_op_id;

    // The dispatcher of a communicator, made by the first call.
    [[nodiscard]] static std::shared_ptr<OperationDispatcher> of(Communicator& comm);

    explicit OperationDispatcher(Communicator& comm);
    // Waits for operations that are finished but not sent yet while something of them moves, then drops them. Says
    // goodbye.
    ~OperationDispatcher();
    OperationDispatcher(OperationDispatcher const&) = delete;
    OperationDispatcher& operator=(OperationDispatcher const&) = delete;

    // Begins an operation, or queues it behind one with the same id that is still closing. Throws RankFailedError if
    // its id was abandoned.
    void open(std::unique_ptr<OperationCore> operation);
    // Ends the operations of a range on every rank. Does nothing if an abandonment of it is known already.
    void abandon(AbandonedRange const& range);
    // The ids between these are about to be used again: what was abandoned of them is long over.
    void forget_abandoned(OpId first, OpId last);
    [[nodiscard]] ReceiveBudget& budget() noexcept { return budget_; }
    [[nodiscard]] TransportSelector& transports() noexcept { return transports_; }
    // Sends a control message; on the progress thread.
    void send(Rank destination, std::vector<std::uint8_t> message);

    [[nodiscard]] std::size_t open_operations_for_testing() const { return open_operations(); }

  private:
    // Operations that are not closed.
    [[nodiscard]] std::size_t open_operations() const;
    // Operations with one id, in the order of their beginnings; the first is the active one.
    struct OperationQueue {
        std::deque<std::unique_ptr<OperationCore>> operations;
        std::deque<Communicator::Arrived> early;    // for an operation behind the active one
        std::optional<RejectedOperation> rejected;  // in place of operations
    };

    [[nodiscard]] ProgressThread::TickResult tick();
    bool take_opened();
    bool route_arrived();
    void route(Communicator::Arrived arrived);
    bool take_abandoned();
    // Ends what is in a queue whose id was abandoned, or stands in for it.
    void reject(OpId op, OperationQueue& queue, AbandonedRange const& range);
    [[nodiscard]] std::optional<AbandonedRange> abandoned_range_of(OpId op) const;
    [[nodiscard]] AbandonedRange const* find_abandoned_locked(OpId op) const RAPIDSMPF_REQUIRES(mutex_);
    // Whether it was not known yet.
    bool remember_abandoned_locked(AbandonedRange const& range) RAPIDSMPF_REQUIRES(mutex_);
    // What is about all operations: a rank leaves or gives some up, or ranks agree on how payloads travel.
    void take_in(Rank source, Goodbye);
    void take_in(Rank source, AbandonedRange const& range);
    void take_in(Rank source, Offer const& offer);
    void take_in(Rank source, Answer const& answer);
    void take_in(Rank source, device::ExportedRegion const& region);
    // The active operation of a queue takes in what has come early for it.
    void feed(OperationQueue& queue);
    // Looks for ranks that have left without a goodbye.
    bool look_for_closed_peers();
    void on_peer_closed(Rank rank);
    void wait_until_flushed(UniqueLock& lock) RAPIDSMPF_REQUIRES(mutex_);
    void say_goodbye() noexcept;
    // Returns whether anything was done; `quiet` is what to say if nothing was.
    [[nodiscard]] ProgressThread::TickResult drive();
    void on_failure(RankFailure const& failure);
    [[nodiscard]] bool has_closed_before(RankFailure const& failure) const;
    // After a failure: ends all operations, when what is still to come has come. Returns whether it did something.
    [[nodiscard]] bool wind_up();
    void cut_off_all();
    void note_flushed();

    Communicator& comm_;
    Tag control_tag_;
    ReceiveBudget budget_;
    TransportSelector transports_;
    ProgressThread::FunctionId function_{0};
    Communicator::ListenerId listener_{0};

    // A rank, as far as it is about to leave or has left.
    struct ClosingPeer {
        std::optional<std::chrono::steady_clock::time_point> heard;  // from the communicator
        bool closed{false};                                          // nothing of it is on its way
    };

    std::map<OpId, OperationQueue> queues_;   // touched by the progress thread only
    std::vector<ClosingPeer> closing_peers_;  // by rank; touched by the progress thread only
    std::vector<Rank> closed_;                // in the order of their going: the first is to blame; likewise
    // After a failure; likewise.
    std::optional<std::chrono::steady_clock::time_point> wind_up_until_;
    bool wound_up_{false};

    mutable Mutex mutex_;
    ConditionVariable changed_;
    std::vector<std::unique_ptr<OperationCore>> opened_ RAPIDSMPF_GUARDED_BY(mutex_);  // not in queues_ yet
    std::vector<std::shared_ptr<OperationState>> all_ RAPIDSMPF_GUARDED_BY(mutex_);  // opened and not closed
    std::deque<AbandonedRange> abandoned_ RAPIDSMPF_GUARDED_BY(mutex_);              // the latest of them
    // Of these, queues_ knows nothing yet.
    std::vector<AbandonedRange> to_abandon_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool closing_ RAPIDSMPF_GUARDED_BY(mutex_){false};     // the destructor waits for flushed_
    bool flushed_ RAPIDSMPF_GUARDED_BY(mutex_){false};     // nothing inserted is still to be sent
    std::thread::id thread_ RAPIDSMPF_GUARDED_BY(mutex_);  // that drives this
    std::atomic<bool> failed_{false};                      // the communicator
    std::atomic<std::uint64_t> advances_{0};               // how many ticks made progress
};

}  // namespace rapidsmpf::exchange

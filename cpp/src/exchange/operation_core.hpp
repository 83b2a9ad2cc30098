// What the progress thread does for an operation: the protocol with the peers, until all last messages are exchanged.
//
// Ownership: the dispatcher's, also when the user's handle is gone. Shared with users is the OperationState only.
// Threading: progress thread only, but for the destructor when there are no more ticks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/progress_thread.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

#include "exchange/operation_state.hpp"
#include "exchange/receive_path.hpp"
#include "exchange/send_path.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class OperationDispatcher;

class OperationCore {
  public:
    using TickResult = ProgressThread::TickResult;

    OperationCore(OperationDispatcher& dispatcher, std::shared_ptr<OperationState> state);
    OperationCore(OperationCore const&) = delete;
    OperationCore& operator=(OperationCore const&) = delete;

    // One round, if there is something to look at. It has finished when it is closed.
    [[nodiscard]] TickResult tick();
    // A control message of `source`; a malformed one fails the communicator in its name.
    void receive(Rank source, std::vector<std::uint8_t> const& bytes);
    // Whether `source` has sent its last message: what follows belongs to another operation.
    [[nodiscard]] bool final_received(Rank source) const { return receive_.final_received(source); }
    // `source` has closed its communicator; all that it sent has been received here.
    void on_peer_closed(Rank source);

    [[nodiscard]] std::shared_ptr<OperationState> const& state() const noexcept { return state_; }
    [[nodiscard]] OpId op() const noexcept { return state_->plan.op; }

  private:
    using Stage = ClosingState::Stage;
    struct Peer {
        std::size_t unfinished{0};  // partitions of the peer that this rank has not finished
        bool final_sent{false};
        bool closed{false};   // has closed its communicator
        bool drained{false};  // all that it will ever insert has come
    };
    void drive(TickResult& result);
    // Takes what users have inserted, and hears whether they have given the operation up.
    void take_inserted();
    // Drops what is not wanted any more.
    void enter(Stage stage, std::optional<Final> const& last_message);
    // Brings chunks and counts to the store. Throws PeerError.
    void deliver(Arrivals arrivals, Rank source = 0, std::vector<PartitionCount> const& counts = {});
    // The own share of what was sent to all.
    void deliver_kept();
    void apply(Rank source, OperationMessage const& message);
    bool compose_all();
    bool compose(Rank to);
    // Tells users how far it is.
    void publish(bool did_something);
    void tell_completed(TickResult& result);
    // Gives up when something will not come any more because its sender has left.
    void check_closed_peers();
    void abandon(Rank origin, std::string const& reason, FinalKind kind, std::exception_ptr error = nullptr);
    // Runs body(): turns a PeerError into the failure of that rank, other exceptions into an error of this operation.
    void guarded(std::function<void()> const& body);
    [[nodiscard]] bool is_closed() const;
    [[nodiscard]] bool all_sent() const;
    [[nodiscard]] Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] Peer const& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] Rank nranks() const noexcept { return static_cast<Rank>(peers_.size()); }
    // The i-th rank behind this one, round and round: so not all ranks begin with the same.
    [[nodiscard]] Rank neighbour(Rank i) const noexcept { return (rank_ + 1 + i) % nranks(); }

    OperationDispatcher& dispatcher_;
    std::shared_ptr<OperationState> state_;
    Operation user_;  // as the plan's `completed` gets it
    Rank const rank_;
    SendPath send_;
    ReceivePath receive_;
    std::vector<Peer> peers_;  // by rank; of the own one nothing is used
    Stage stage_{Stage::open};
    std::optional<Final> last_message_;  // once it is abandoned
    bool all_finished_{false};           // this rank inserts nothing more
    bool active_{false};                 // something is in flight: tick() looks without being told to
    bool relaxed_{false};  // it waits for more to be inserted, and is in no hurry for what others send
    OperationState::Progress progress_;  // as it was last told
    std::optional<ProgressThread::Clock::time_point> wake_at_;
};

}  // namespace rapidsmpf::exchange

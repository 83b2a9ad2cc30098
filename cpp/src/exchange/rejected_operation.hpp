// Stands in for an operation that this rank will not begin because its range was abandoned, while other ranks have
// begun it: tells each of them so in a last message, and takes in what they send, so that theirs can close.
//
// It grants no frame, so no payload ever comes for it. Ownership: the dispatcher keeps it in the queue of the operation's
// id, as long as it is not closed. Touched by the progress thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class OperationDispatcher;

class RejectedOperation {
  public:
    // Sends the last messages.
    RejectedOperation(
        Communicator& comm, OperationDispatcher& dispatcher, OpId op, AbandonedRange const& range);

    // A control message of `source`. Throws FormatError.
    void receive(Rank source, std::span<std::uint8_t const> bytes);
    // `source` has sent its last message, or nothing comes of it any more.
    void done(Rank source) { done_[static_cast<std::size_t>(source)] = true; }
    [[nodiscard]] bool is_done(Rank source) const { return done_[static_cast<std::size_t>(source)]; }
    [[nodiscard]] bool is_closed() const;

  private:
    std::vector<bool> done_;  // by rank
};

}  // namespace rapidsmpf::exchange

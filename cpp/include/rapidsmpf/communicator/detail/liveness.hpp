// How a communicator learns that another rank died, gave up or left: a channel beside the transport.
//
// UCX endpoint error handling would cost the shared-memory transports, so a transport does not notice a dead
// peer. What starts the ranks does (bootstrap's TCP coordinator, a scheduler's worker events): it
// implements this interface and gives it to the communicator, which owns it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf {

class Liveness {
  public:
    struct Events {
        Events(std::function<void(RankFailure const&)> failed_, std::function<void(Rank)> left_)
            : failed{std::move(failed_)}, left{std::move(left_)} {}
        // A rank died, raised, or vanished. At most once.
        std::function<void(RankFailure const&)> failed;
        // A rank closed its communicator in good order, all its messages delivered.
        std::function<void(Rank)> left;
    };

    // Implies stop() and, if neither leave() nor abort() was called, tells the others that this rank left.
    virtual ~Liveness() = default;
    Liveness(Liveness const&) = delete;
    Liveness& operator=(Liveness const&) = delete;

    // Begins to report, from a thread of the channel; what happened before is reported at once.
    virtual void start(Events events) = 0;
    // After it returns no event is running (unless it is the caller) and none will be reported.
    virtual void stop() = 0;
    // Tells the others that this rank gives up, and why.
    virtual void abort(std::string const& reason) = 0;
    // Tells the others, `culprit` too, that that rank has to be given up, and why.
    virtual void report_protocol_violation(Rank culprit, std::string const& reason) = 0;
    // Tells the others that this rank closes its communicator in good order. Waits up to `patience` for the others
    // to want to leave as well.
    virtual void graceful_close(std::chrono::milliseconds patience) = 0;

  protected:
    Liveness() = default;
};

}  // namespace rapidsmpf

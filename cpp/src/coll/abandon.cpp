#include <rapidsmpf/coll/detail/abandon.hpp>

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

namespace rapidsmpf::coll {

void abandon_operations(
    Communicator& comm, OpId first, OpId last, std::string reason, std::optional<Rank> origin) {
    RAPIDSMPF_EXPECTS(
        0 <= first && first <= last && last < exchange::OperationDispatcher::control_op,
        "operations " + std::to_string(first) + " to " + std::to_string(last) + ": ids go from 0 to "
            + std::to_string(exchange::OperationDispatcher::control_op - 1),
        std::invalid_argument);
    auto const culprit = origin.value_or(comm.rank());
    RAPIDSMPF_EXPECTS(
        0 <= culprit && culprit < comm.nranks(), "there is no rank " + std::to_string(culprit),
        std::invalid_argument);
    comm.check();
    exchange::OperationDispatcher::of(comm)->abandon(
        exchange::AbandonedRange{first, last, culprit, std::move(reason)});
}

void forget_abandoned(Communicator& comm, OpId first, OpId last) {
    comm.check();
    exchange::OperationDispatcher::of(comm)->forget_abandoned(first, last);
}

}  // namespace rapidsmpf::coll

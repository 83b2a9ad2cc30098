#include "exchange/rejected_operation.hpp"

#include <algorithm>

#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

namespace rapidsmpf::exchange {

RejectedOperation::RejectedOperation(
    Communicator& comm, OperationDispatcher& dispatcher, OpId op, AbandonedRange const& range)
    : done_(static_cast<std::size_t>(comm.nranks()), false) {
    done(comm.rank());
    Final last;
    last.kind = FinalKind::failed;
    last.origin = range.origin;
    last.reason = range.reason;
    for (Rank peer = 0; peer < comm.nranks(); ++peer) {
        if (peer != comm.rank() && !comm.has_closed(peer)) {
            MessageWriter writer{op};
            writer.final(last);
            dispatcher.send(peer, std::move(writer).take());
        }
    }
}

void RejectedOperation::receive(Rank source, std::span<std::uint8_t const> bytes) {
    if (read_operation_message(bytes).final) {
        done(source);
    }
}

bool RejectedOperation::is_closed() const {
    return std::all_of(done_.begin(), done_.end(), [](bool is_done) { return is_done; });
}

}  // namespace rapidsmpf::exchange

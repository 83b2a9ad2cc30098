#include "exchange/send_path.hpp"

#include <algorithm>

#include "exchange/payload.hpp"
#include "exchange/peer_error.hpp"

namespace rapidsmpf::exchange {

SendPath::SendPath(
    Settings const& settings, std::shared_ptr<BufferResource> br, TransportSelector& transports,
    Tag payload_tag, Rank rank, Rank nranks)
    : br_{std::move(br)}, transports_{transports}, payload_tag_{payload_tag}, rank_{rank} {
    for (Rank peer = 0; peer < nranks; ++peer) {
        outboxes_.emplace_back(settings);
    }
}

void SendPath::add(Rank peer, std::vector<OutgoingPiece> pieces, std::vector<PartitionCount> const& counts) {
    auto& to = outbox(peer);
    for (auto& piece : pieces) {
        to.push(std::move(piece));
    }
    for (auto const& count : counts) {
        to.push_count(count);
    }
}

void SendPath::sent(std::shared_ptr<Payload> const& payload) {
    if (--payload->destinations == 0 && payload->keep_as) {
        kept_.push_back(payload);
    }
}

void SendPath::drop(std::vector<OutgoingPiece> const& pieces) {
    for (auto const& piece : pieces) {
        sent(piece.payload);
    }
}

void SendPath::drop(Rank peer) {
    outbox(peer).drop([this](auto const& payload) { sent(payload); });
}

void SendPath::take_in(Rank peer, OperationMessage const& message) {
    auto& to = outbox(peer);
    to.on_credit(message.credit);
    for (auto const& grant : message.grants) {
        to.on_grant(grant);
    }
}

void SendPath::compose(Rank peer, MessageWriter& writer) {
    is_blocked_ = outbox(peer).compose(writer, [this](auto const& payload) { sent(payload); }) || is_blocked_;
}

void SendPath::compose_notices(Rank peer, MessageWriter& writer) {
    if (auto const written = outbox(peer).take_written(); written > 0) {
        writer.written(written);
    }
}

bool SendPath::start() {
    bool any = false;
    for (std::size_t i = 0; i < outboxes_.size(); ++i) {
        auto const peer = neighbour(i);
        any = on_behalf_of(peer, [&] { return outbox(peer).start(transports_, {peer, payload_tag_, br_}); })
              || any;
    }
    return any;
}

bool SendPath::poll() {
    bool any = false;
    for (Rank peer = 0; peer < static_cast<Rank>(outboxes_.size()); ++peer) {
        any = on_behalf_of(
                  peer, [&] { return outbox(peer).poll([this](auto const& payload) { sent(payload); }); })
              || any;
    }
    return any;
}

bool SendPath::in_flight() const noexcept {
    return is_blocked_ || std::any_of(outboxes_.begin(), outboxes_.end(), [](Outbox const& to) {
               return to.in_flight();
           });
}

void SendPath::clear() {
    for (auto& to : outboxes_) {
        to.clear();
    }
}

void SendPath::cut_off() {
    for (auto& to : outboxes_) {
        to.cut_off();
    }
    kept_.clear();
}

}  // namespace rapidsmpf::exchange

#include "exchange/transport_selector.hpp"

#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>

#include "exchange/device_peer_memory.hpp"
#include "exchange/peer_memory.hpp"

namespace rapidsmpf::exchange {

TransportSelector::TransportSelector(Communicator& comm)
    : comm_{comm}, messages_{comm}, peers_(static_cast<std::size_t>(comm.nranks())) {
    if (config::get_text(comm.options(), "peer_memory") != "auto" || comm.nranks() == 1) {
        return;
    }
    std::string why_not;
    if (Device::current().kind() == DeviceKind::cpu) {
        peer_memory_ = PeerMemory::make(comm, why_not);
    } else {
        peer_memory_ = DevicePeerMemory::make(comm, Device::current(), why_not);
    }
    if (!peer_memory_) {
        explain("this process cannot have shared memory: " + why_not);
    }
}

std::optional<Offer> TransportSelector::take_offer(Rank to) {
    auto& entry = peer(to);
    // A peer that has begun with something else does not use it.
    bool const useless = entry.stage == Stage::decided && entry.kind == TransportKind::messages;
    if (!peer_memory_ || useless || std::exchange(entry.offered, true)) {
        return std::nullopt;
    }
    return Offer{peer_memory_->kind(), peer_memory_->offer()};
}

std::vector<device::ExportedRegion> TransportSelector::take_regions(Rank to) {
    auto const& entry = peer(to);
    bool const uses = entry.stage == Stage::decided && entry.kind != TransportKind::messages;
    return uses ? peer_memory_->take_regions(to) : std::vector<device::ExportedRegion>{};
}

void TransportSelector::on_region(Rank source, device::ExportedRegion const& region) {
    RAPIDSMPF_EXPECTS(
        peer_memory_ && peer(source).stage != Stage::silent,
        "it told of a region of memory it has not offered", FormatError);
    peer_memory_->add_region(source, region);
}

void TransportSelector::on_other(Rank source) {
    if (peer(source).stage == Stage::silent) {
        decide(source, TransportKind::messages, "");
    }
}

std::optional<Answer> TransportSelector::on_offer(Rank source, Offer const& offer) {
    auto& entry = peer(source);
    RAPIDSMPF_EXPECTS(entry.stage == Stage::silent, "it offered its memory too late", FormatError);
    if (!peer_memory_ || offer.kind != peer_memory_->kind()) {
        // It waits for nothing: what this rank says next is no offer.
        decide(source, TransportKind::messages, "");
        return std::nullopt;
    }
    auto const why_not = peer_memory_->accept(source, offer.memory);
    entry.stage = Stage::answering;
    if (why_not.empty()) {
        return Answer{peer_memory_->kind(), ""};
    }
    explain("rank " + std::to_string(source) + ": " + why_not);
    return Answer{TransportKind::messages, why_not};
}

void TransportSelector::on_answer(Rank source, Answer const& answer) {
    auto& entry = peer(source);
    RAPIDSMPF_EXPECTS(
        peer_memory_ && entry.offered && entry.stage == Stage::answering, "it answered what nobody asked",
        FormatError);
    if (answer.kind != peer_memory_->kind()) {
        decide(source, TransportKind::messages, "rank " + std::to_string(source) + " says: " + answer.reason);
    } else {
        decide(source, peer_memory_->is_open(source) ? peer_memory_->kind() : TransportKind::messages, "");
    }
}

void TransportSelector::decide(Rank rank, TransportKind kind, std::string const& why_not) {
    auto& entry = peer(rank);
    entry.stage = Stage::decided;
    entry.kind = kind;
    if (!why_not.empty()) {
        explain(why_not);
    }
    comm_.logger().debug(
        "payloads between this rank and rank " + std::to_string(rank) + " travel "
        + (kind == TransportKind::messages ? "as messages" : "through peer memory"));
}

void TransportSelector::explain(std::string const& why_not) {
    if (!std::exchange(explained_, true)) {
        comm_.logger().info("payloads travel as messages, not through peer memory: " + why_not);
    }
}

Transport* TransportSelector::incoming(Rank from) noexcept {
    auto const& entry = peers_[static_cast<std::size_t>(from)];
    if (entry.stage != Stage::decided) {
        return nullptr;
    }
    return entry.kind == TransportKind::messages ? static_cast<Transport*>(&messages_) : peer_memory_.get();
}

Transport& TransportSelector::outgoing(std::span<RemoteAddress const> addresses) {
    if (addresses.empty()) {
        return messages_;
    }
    RAPIDSMPF_EXPECTS(
        peer_memory_ != nullptr, "it gave addresses to a rank that does not write", FormatError);
    return *peer_memory_;
}

void TransportSelector::close() noexcept {
    if (peer_memory_) {
        peer_memory_->close();
    }
}

}  // namespace rapidsmpf::exchange

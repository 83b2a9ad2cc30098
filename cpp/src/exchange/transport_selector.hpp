// Which kind of transport payloads take between this rank and each other one of a communicator.
//
// Decided once for a pair, before its first payload. A rank that can do more than messages says so before anything else
// it says to a peer: it *offers* the peer its memory. A rank that gets an offer tries to map that memory, and *answers*. A
// pair uses peer memory, of the host or of GPUs, when each has mapped the other's; a rank that begins with anything but an
// offer gets messages. Until the answer is here, frames of that peer are not granted.
//
// The option "peer_memory" switches it off. What stands against it is logged once, at level info.
//
// Threading: progress thread only, but for close() when that is gone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>

#include "exchange/message_transport.hpp"
#include "exchange/peer_transport.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class TransportSelector {
  public:
    // Throws std::invalid_argument for an unknown "peer_memory".
    explicit TransportSelector(Communicator& comm);

    // What is sent to a peer before the next message, once.
    [[nodiscard]] std::optional<Offer> take_offer(Rank peer);
    [[nodiscard]] std::vector<device::ExportedRegion> take_regions(Rank peer);

    // A control message of `source` has come that is neither of these.
    void on_other(Rank source);
    // Returns what to answer, if anything. Throws FormatError.
    [[nodiscard]] std::optional<Answer> on_offer(Rank source, Offer const& offer);
    // Throws FormatError.
    void on_answer(Rank source, Answer const& answer);
    // Throws FormatError, and std::runtime_error when the region cannot be used here.
    void on_region(Rank source, device::ExportedRegion const& region);

    // How `peer` sends payloads to this rank; null as long as that is not decided.
    [[nodiscard]] Transport* incoming(Rank peer) noexcept;
    [[nodiscard]] Transport& messages() noexcept { return messages_; }
    // How to send what a peer has given these addresses for. Throws FormatError.
    [[nodiscard]] Transport& outgoing(std::span<RemoteAddress const> addresses);

    // Moves what the transports do not move by themselves; returns whether there was anything.
    bool progress() { return peer_memory_ && peer_memory_->progress(); }
    // Touches no other rank's memory any more.
    void close() noexcept;

  private:
    enum class Stage : std::uint8_t {
        silent,     // nothing has come from the peer
        answering,  // its offer has come, its answer has not
        decided,
    };
    struct Peer {
        Stage stage{Stage::silent};
        TransportKind kind{TransportKind::messages};
        bool offered{false};  // to the peer
    };
    [[nodiscard]] Peer& peer(Rank rank) { return peers_.at(static_cast<std::size_t>(rank)); }
    void decide(Rank rank, TransportKind kind, std::string const& why_not);
    void explain(std::string const& why_not);

    Communicator& comm_;
    MessageTransport messages_;
    std::unique_ptr<PeerTransport> peer_memory_;  // null: off, or the system does not allow it
    std::vector<Peer> peers_;
    bool explained_{false};
};

}  // namespace rapidsmpf::exchange

// What one operation sends, to all its peers: an outbox for each, and the transports that they use.
//
// Threading: progress thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "exchange/outbox.hpp"
#include "exchange/transport_selector.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class SendPath {
  public:
    // The transports must outlive it.
    SendPath(
        Settings const& settings, std::shared_ptr<BufferResource> br, TransportSelector& transports,
        Tag payload_tag, Rank rank, Rank nranks);

    void add(Rank peer, std::vector<OutgoingPiece> pieces, std::vector<PartitionCount> const& counts);
    // A peer has left: what it was to get counts as sent, also what is inserted for it later.
    void drop(Rank peer);
    void drop(std::vector<OutgoingPiece> const& pieces);

    // What a peer's message says. Throws FormatError.
    void take_in(Rank peer, OperationMessage const& message);

    // Writes what can be said to a peer now. What it cannot say yet because buffers are still being written makes it blocked.
    void compose(Rank peer, MessageWriter& writer);
    void unblock() noexcept { is_blocked_ = false; }
    [[nodiscard]] bool is_blocked() const noexcept { return is_blocked_; }
    // Writes that frames lie in a peer's memory.
    void compose_notices(Rank peer, MessageWriter& writer);
    // Hands granted frames to the transports; returns whether it did. Throws PeerError.
    bool start();
    // Looks at what the transports have; returns whether something has left. Throws PeerError.
    bool poll();
    // Chunks for all ranks that are sent by now, so that this rank may have its own; forgotten once asked for.
    [[nodiscard]] std::vector<std::shared_ptr<Payload>> take_kept() noexcept {
        return std::exchange(kept_, {});
    }

    // Whether frames are granted or with a transport: their progress has to be looked at.
    [[nodiscard]] bool in_flight() const noexcept;
    [[nodiscard]] bool in_flight(Rank peer) const { return outbox(peer).in_flight(); }
    [[nodiscard]] bool is_empty(Rank peer) const { return outbox(peer).empty(); }
    [[nodiscard]] std::uint64_t backlog(Rank peer) const { return outbox(peer).backlog(); }
    [[nodiscard]] std::uint64_t payload_messages(Rank peer) const { return outbox(peer).payload_messages(); }

    // The operation is abandoned: forgets what the transports do not have.
    void clear();
    // And writes no more into a peer's memory.
    void stop_writing(Rank peer) { outbox(peer).stop_writing(); }
    // The communicator has failed: forgets everything.
    void cut_off();

  private:
    [[nodiscard]] Outbox& outbox(Rank peer) { return outboxes_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] Outbox const& outbox(Rank peer) const { return outboxes_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] Rank neighbour(std::size_t i) const noexcept {
        return static_cast<Rank>((static_cast<std::size_t>(rank_) + 1 + i) % outboxes_.size());
    }
    void sent(std::shared_ptr<Payload> const& payload);

    std::shared_ptr<BufferResource> br_;
    TransportSelector& transports_;
    Tag payload_tag_;
    Rank rank_;
    std::vector<Outbox> outboxes_;                // by rank
    std::vector<std::shared_ptr<Payload>> kept_;  // sent to all others
    bool is_blocked_{false};
};

}  // namespace rapidsmpf::exchange

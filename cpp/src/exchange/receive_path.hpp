// What one operation receives, from all its peers: an inbox for each, and the frames that wait for memory.
//
// Threading: progress thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "exchange/announced_frame.hpp"
#include "exchange/inbox.hpp"
#include "exchange/piece_unpacker.hpp"
#include "exchange/receive_budget.hpp"
#include "exchange/transport_selector.hpp"
#include "exchange/waker.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class ReceivePath {
  public:
    // Budget and transports must outlive it. The waker hears when memory has come free that a frame waited for.
    ReceivePath(
        Settings const& settings, std::shared_ptr<BufferResource> br, PieceUnpacker const& unpacker,
        ReceiveBudget& budget, TransportSelector& transports, std::weak_ptr<Waker> waker, Tag payload_tag,
        Rank nranks);

    // The peer has written frames to where they were granted. Throws FormatError.
    void on_written(Rank peer, std::uint32_t frames) { inbox(peer).on_written(frames); }
    // What a peer's message brings and announces. Throws FormatError.
    void take_in(Rank peer, OperationMessage const& message, Arrivals& arrivals);
    void on_final(Rank peer, Final const& final) { inbox(peer).on_final(final); }
    [[nodiscard]] bool final_received(Rank peer) const { return inbox(peer).final_received(); }
    // The peer has left, and writes no more.
    void drop_unwritten(Rank peer) { inbox(peer).drop_unwritten(); }

    // Grants frames for which there is room; returns whether it did.
    bool grant();
    // Hands on what has come; returns whether anything has. Throws PeerError.
    bool poll(Arrivals& arrivals);
    // Writes the grants that a peer has not heard of, and what it gets back of its credit: that alone is worth a message only
    // when there is much of it, because without credit the peer uses frames.
    void compose_grants(Rank peer, MessageWriter& writer);
    void compose_credit(Rank peer, MessageWriter& writer);

    // Whether messages are awaited, which come only to who looks for them.
    [[nodiscard]] bool has_to_look() const noexcept;
    [[nodiscard]] bool in_flight(Rank peer) const { return inbox(peer).in_flight(); }
    [[nodiscard]] bool in_flight() const noexcept;
    // Whether frames wait for their turn, of which there is no notice.
    [[nodiscard]] bool waits_for_turn() const noexcept { return !frames_.empty() && !waits_for_memory_; }

    // The operation is abandoned: drops what comes from now on.
    void discard();
    // The communicator has failed: forgets everything.
    void cut_off();

  private:
    struct WaitingFrame {
        WaitingFrame(Rank source_, AnnouncedFrame frame_) : source{source_}, frame{std::move(frame_)} {}
        Rank source;
        AnnouncedFrame frame;
        std::shared_ptr<MemoryRequest> memory;  // once it had to wait for memory
        std::optional<ScopedTimer> wait;        // until it is granted
    };
    [[nodiscard]] Inbox& inbox(Rank peer) { return inboxes_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] Inbox const& inbox(Rank peer) const { return inboxes_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] bool may_grant_first();
    // Memory for the first waiting frame; nothing while it has to wait for it.
    [[nodiscard]] std::optional<MemoryReservation> memory_for(WaitingFrame& waiting);

    Settings settings_;
    std::shared_ptr<BufferResource> br_;
    PieceUnpacker const& unpacker_;
    ReceiveBudget& budget_;
    TransportSelector& transports_;
    std::weak_ptr<Waker> waker_;
    Tag payload_tag_;
    std::vector<Inbox> inboxes_;       // by rank; the own one is not used
    std::deque<WaitingFrame> frames_;  // of all peers, in the order of their arrival
    bool waits_for_memory_{false};     // the first frame does, and says when it has it
};

}  // namespace rapidsmpf::exchange

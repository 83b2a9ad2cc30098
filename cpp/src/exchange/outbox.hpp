// The sending side towards one peer of one operation.
//
// A piece goes through these stages; in the first two its data may still be spilled:
//   waiting     inserted
//   announced   the peer knows its size and has not asked for it
//   granted     the peer has memory for it; the frame is sent as soon as its buffers are ready
//   sending     the transport has it
// Small pieces skip all of them and travel inside a control message, as far as the peer's credit goes.
//
// Threading: progress thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "exchange/payload.hpp"
#include "exchange/transport.hpp"
#include "exchange/transport_selector.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// A piece that waits to be sent.
struct OutgoingPiece {
    OutgoingPiece(PieceId id_, std::shared_ptr<Payload> payload_) : id{id_}, payload{std::move(payload_)} {}
    PieceId id;
    std::shared_ptr<Payload> payload;
};

class Outbox {
  public:
    // Called when a piece has left and its payload is no longer read.
    using Sent = std::function<void(std::shared_ptr<Payload> const&)>;

    explicit Outbox(Settings const& settings);
    Outbox(Outbox&&) = default;

    void push(OutgoingPiece piece) {
        backlog_ += piece.id.chunks();
        waiting_.push_back(std::move(piece));
    }
    void push_count(PartitionCount count) { counts_.push_back(count); }

    // Writes what can be said now: counts, small pieces, announcements. Returns whether there is something that
    // could not be said because its buffers are still being written.
    bool compose(MessageWriter& writer, Sent const& sent);

    // The peer has taken in so many bytes of eager pieces, has memory for so many frames. Throws FormatError
    // when it cannot be.
    void on_credit(std::uint64_t bytes);
    void on_grant(Grant const& grant);

    // Hands granted frames to their transport. Returns whether it did. Throws FormatError when a frame cannot go
    // where the peer wants it.
    bool start(TransportSelector& transports, Transport::PeerRoute const& route);
    // Looks at what the transport has; returns whether something has left.
    bool poll(Sent const& sent);

    // Whether frames are granted or with the transport: the progress thread must not park.
    [[nodiscard]] bool in_flight() const noexcept { return !granted_.empty() || !in_transfer_.empty(); }
    // Frames that were written into the peer's memory, and of which it does not know that yet.
    [[nodiscard]] std::uint32_t take_written() noexcept { return std::exchange(written_, 0); }
    // Stops writing into the peer's memory.
    void stop_writing();
    // Whether everything pushed has left, and the peer has been told.
    [[nodiscard]] bool empty() const noexcept {
        return waiting_.empty() && counts_.empty() && announced_.empty() && !in_flight() && written_ == 0;
    }
    // Chunks that wait for the peer.
    [[nodiscard]] std::uint64_t backlog() const noexcept { return backlog_; }
    [[nodiscard]] std::uint64_t payload_messages() const noexcept { return payload_messages_; }
    // Forgets what the transport does not have yet; poll() goes on with the rest.
    void clear();
    // The peer has left and wants nothing more: what the transport does not have yet counts as sent.
    void drop(Sent const& sent);
    // Forgets everything, on the progress thread.
    void cut_off() {
        clear();
        in_transfer_.clear();
        backlog_ = 0;
    }

  private:
    struct Frame {
        std::vector<OutgoingPiece> pieces;
        std::uint64_t bytes{0};
        std::vector<RemoteAddress> addresses;  // where the peer wants it, once granted; none: as messages
        SendTransfer::Pieces pins;             // by piece: its data, once granted and in memory
        std::unique_ptr<SendTransfer> send_transfer;  // once all are
    };
    void compose_eager(MessageWriter& writer, Sent const& sent);
    bool compose_frames(MessageWriter& writer);
    OutgoingPiece pop_waiting();
    // A piece has left.
    void discount(OutgoingPiece const& piece);
    // Only what the transports have is left.
    void recount();
    // Whether the pieces of a frame are in memory and can be read.
    [[nodiscard]] static bool prepare(Frame& frame);
    [[nodiscard]] bool is_gathered(OutgoingPiece const& piece) const noexcept {
        return piece.payload->size <= settings_.gather_limit;
    }

    Settings settings_;
    std::deque<OutgoingPiece> waiting_;
    std::uint64_t backlog_{0};
    std::vector<PartitionCount> counts_;
    std::deque<Frame> announced_;
    std::deque<Frame> granted_;
    std::deque<Frame> in_transfer_;
    std::uint64_t announced_bytes_{0};
    std::uint64_t credit_;
    std::uint64_t payload_messages_{0};
    std::uint32_t written_{0};
};

}  // namespace rapidsmpf::exchange

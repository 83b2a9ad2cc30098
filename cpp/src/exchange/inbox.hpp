// The receiving side from one peer of one operation: which payloads are on their way, and what the peer has
// to be told about it.
//
// A frame that was announced waits in the receive path (all peers' in order of arrival) until the receive budget
// has room; then grant() has the transport make room for its pieces.
//
// Threading: progress thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "exchange/announced_frame.hpp"
#include "exchange/transport.hpp"
#include "exchange/transport_selector.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class Inbox {
  public:
    using Received = ReceiveTransfer::Received;

    explicit Inbox(Rank peer) : peer_{peer} {}
    Inbox(Inbox&&) = default;
    Inbox& operator=(Inbox&&) = default;

    // Takes in pieces that came inside a message.
    void take_eager(PieceList const& list, BufferResource& br, Received const& received);
    // Makes room for a frame whose ticket is granted, by the transport that the peer uses. `memory` holds
    // frame.memory_needed() bytes.
    void grant(
        AnnouncedFrame frame, TransportSelector& transports, Transport::PeerRoute const& route,
        MemoryReservation memory);
    // The peer has written so many frames to where they were granted. Throws FormatError.
    void on_written(std::uint32_t frames);
    // Hands on what has come. Returns whether anything has.
    bool poll(Received const& received);

    // What to tell the peer; forgotten once asked for.
    [[nodiscard]] std::vector<Grant> take_grants() noexcept { return std::exchange(grants_, {}); }
    [[nodiscard]] std::uint64_t take_credit() noexcept { return std::exchange(credit_, 0); }

    [[nodiscard]] std::uint64_t credit() const noexcept { return credit_; }

    // The peer's last message has come. Throws FormatError when there is one already, or when it does not fit
    // what was granted.
    void on_final(Final const& final);
    [[nodiscard]] bool final_received() const noexcept { return final_.has_value(); }
    [[nodiscard]] bool in_flight() const noexcept { return !receiving_.empty(); }
    // Whether messages are awaited, which come only to who looks for them; of what is written a message tells.
    [[nodiscard]] bool has_to_look() const noexcept;
    // The peer has left, and writes no more.
    void drop_unwritten();
    // From now on what comes is dropped; receives that will not be matched are cancelled once that is known.
    void discard();

  private:
    struct Frame {
        Frame(std::unique_ptr<ReceiveTransfer> receive_transfer_, std::uint64_t first_message_)
            : receive_transfer{std::move(receive_transfer_)}, first_message{first_message_} {}
        std::unique_ptr<ReceiveTransfer> receive_transfer;
        std::uint64_t first_message;
        bool written{false};
        [[nodiscard]] bool is_unwritten() const noexcept {
            return !receive_transfer->addresses().empty() && !written;
        }
    };
    void cancel_unmatched();

    Rank peer_;
    std::deque<Frame> receiving_;
    std::uint64_t payload_messages_{0};  // receives posted
    std::vector<Grant> grants_;
    std::uint64_t credit_{0};
    std::optional<Final> final_;
    bool discard_{false};
};

}  // namespace rapidsmpf::exchange

// The receiving side from one peer of one operation: which payloads are on their way, and what the peer has
// to be told about it.
//
// A frame that was announced waits in the operation (all peers' in order of arrival) until the receive budget
// has room; then grant() allocates memory for its pieces and posts the receives. Not thread-safe: the
// operation's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/payload.hpp>
#include <rapidsmpf/exchange/receive_budget.hpp>
#include <rapidsmpf/exchange/wire.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::exchange {

// A frame that a peer has announced: its pieces with their metadata, and what is needed to receive the rest.
struct AnnouncedFrame {
    struct Piece {
        Piece(PieceHeader header_, std::vector<std::uint8_t> metadata_)
            : header{header_}, metadata{std::move(metadata_)} {}
        PieceHeader header;
        std::vector<std::uint8_t> metadata;
    };
    // Throws FormatError when the frame would take an absurd number of messages.
    AnnouncedFrame(PieceList const& list, ReceiveBudget& budget);

    // Whether a piece travels with others in one message, if there are others.
    [[nodiscard]] bool is_small(Piece const& piece) const noexcept {
        return piece.header.data_size > 0 && piece.header.data_size <= gather_limit;
    }
    // Bytes to allocate for it: its data, and what is gathered a second time.
    [[nodiscard]] std::size_t memory_needed() const;

    std::vector<Piece> pieces;
    std::uint64_t gather_limit;
    std::size_t split_bytes;
    ReceiveBudget::Ticket ticket;
};

class Inbox {
  public:
    // Called for each chunk that has come whole.
    using Received = std::function<void(PieceHeader const&, PackedData)>;

    explicit Inbox(Rank peer) : peer_{peer} {}
    Inbox(Inbox&&) = default;
    Inbox& operator=(Inbox&&) = default;

    // Takes in pieces that came inside a message.
    void take_eager(PieceList const& list, BufferResource& br, Received const& received);
    // Allocates memory for a frame whose ticket is granted, and posts its receives. `memory` holds
    // frame.memory_needed() bytes.
    void grant(
        AnnouncedFrame frame, Communicator& comm, Tag tag, BufferResource& br, MemoryReservation memory);
    // Looks at the posted receives and hands on what has come. Returns whether anything has.
    bool poll(BufferResource& br, Received const& received);

    // What to tell the peer; forgotten once asked for.
    [[nodiscard]] std::uint32_t take_grants() noexcept { return std::exchange(grants_, 0); }
    [[nodiscard]] std::uint64_t take_credit() noexcept { return std::exchange(credit_, 0); }

    [[nodiscard]] std::uint64_t credit() const noexcept { return credit_; }

    // The peer's last message has come. Throws FormatError when there is one already, or when it does not fit
    // what was granted.
    void on_final(Final const& final);
    [[nodiscard]] bool final_received() const noexcept { return final_.has_value(); }
    [[nodiscard]] bool in_flight() const noexcept { return !receiving_.empty(); }
    // From now on what comes is dropped; receives that will not be matched are cancelled once that is known.
    void discard();

  private:
    struct Frame {
        Frame(AnnouncedFrame announced_, MemoryReservation memory_)
            : announced{std::move(announced_)}, memory{std::move(memory_)} {}
        AnnouncedFrame announced;
        std::shared_ptr<Buffer> gathered;                 // of the small pieces, if more than one has data
        std::vector<std::shared_ptr<PackedData>> direct;  // by piece; null: in `gathered`, or no data
        MemoryReservation memory;                         // for what is copied out of `gathered`
        std::vector<std::unique_ptr<Communicator::Request>> requests;
        std::uint64_t first_message{0};
        std::uint64_t messages{0};
    };
    void deliver(Frame& frame, BufferResource& br, Received const& received);
    void cancel_unmatched();

    Rank peer_;
    std::deque<Frame> receiving_;
    std::uint64_t payload_messages_{0};  // receives posted
    std::uint32_t grants_{0};
    std::uint64_t credit_{0};
    std::optional<Final> final_;
    bool discard_{false};
};

}  // namespace rapidsmpf::exchange

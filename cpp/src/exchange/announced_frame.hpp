// A frame that a peer has announced: its pieces with their metadata, and what is needed to receive the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "exchange/receive_budget.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// A piece that another rank has announced and not sent yet.
struct AnnouncedPiece {
    AnnouncedPiece(PieceHeader header_, std::vector<std::uint8_t> metadata_)
        : header{header_}, metadata{std::move(metadata_)} {}
    PieceHeader header;
    std::vector<std::uint8_t> metadata;
};

struct AnnouncedFrame {
    // Throws FormatError when the frame would take an absurd number of messages.
    AnnouncedFrame(PieceList const& list, ReceiveBudget& budget);

    // Whether a piece travels with others in one message, if there are others.
    [[nodiscard]] bool is_small(AnnouncedPiece const& piece) const noexcept {
        return piece.header.data_size > 0 && piece.header.data_size <= gather_limit;
    }
    // Bytes to allocate for it: its data, and what is gathered a second time.
    [[nodiscard]] std::size_t memory_needed() const;

    std::vector<AnnouncedPiece> pieces;
    std::uint64_t gather_limit;
    std::size_t split_bytes;
    ReceiveBudget::Ticket ticket;
};

}  // namespace rapidsmpf::exchange

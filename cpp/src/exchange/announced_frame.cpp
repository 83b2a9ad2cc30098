#include "exchange/announced_frame.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

namespace {

// The receiver rejects a frame that its sender splits into more messages than this.
constexpr std::uint64_t most_messages = std::uint64_t{1} << 20U;

std::uint64_t data_bytes(PieceList const& list) {
    std::uint64_t bytes = 0;
    for (auto const& piece : list.pieces) {
        bytes += piece.data_size;
    }
    RAPIDSMPF_EXPECTS(
        bytes / list.split_bytes < most_messages,
        "a frame of " + std::to_string(bytes) + " bytes in messages of " + std::to_string(list.split_bytes)
            + " bytes",
        FormatError);
    return bytes;
}

}  // namespace

AnnouncedFrame::AnnouncedFrame(PieceList const& list, ReceiveBudget& budget)
    : gather_limit{list.gather_limit},
      split_bytes{static_cast<std::size_t>(
          std::min<std::uint64_t>(list.split_bytes, std::numeric_limits<std::size_t>::max()))},
      ticket{budget.draw(data_bytes(list))} {
    pieces.reserve(list.pieces.size());
    auto metadata = list.metadata;
    for (auto const& header : list.pieces) {
        auto const own = metadata.first(header.metadata_size);
        metadata = metadata.subspan(header.metadata_size);
        pieces.emplace_back(header, std::vector<std::uint8_t>(own.begin(), own.end()));
    }
}

std::size_t AnnouncedFrame::memory_needed() const {
    std::size_t all = 0;
    std::size_t small = 0;
    std::size_t count = 0;
    for (auto const& piece : pieces) {
        all += piece.header.data_size;
        if (is_small(piece)) {
            small += piece.header.data_size;
            ++count;
        }
    }
    return count > 1 ? all + small : all;
}

}  // namespace rapidsmpf::exchange

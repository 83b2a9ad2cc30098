// Concatenates columns on a GPU: what cannot be done by copying bytes. All pieces of a kind by few launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rapidsmpf/device/device.hpp>

#include "table/host/hash.hpp"

namespace rapidsmpf::detail {

// `rows` offsets behind the first one of `source`, made to continue those that end with `base`.
struct OffsetPiece {
    void const* source;
    void* destination;  // where the first of them goes; before it, a zero is written when `base` is zero
    std::int64_t rows;
    std::int64_t base;
};
// `count` bits from the first of `source` on (null: ones), to bit `position` of `destination`. The bits of the
// destination are zero before. Both are aligned to 4 bytes, and so are the ends of what may be read of `source`.
struct BitPiece {
    std::uint32_t const* source;
    std::uint32_t* destination;
    std::int64_t position;
    std::int64_t count;
};

void join_offsets32(std::span<OffsetPiece const> pieces, Stream stream);
void join_offsets64(std::span<OffsetPiece const> pieces, Stream stream);
void join_bits(std::span<BitPiece const> pieces, Stream stream);
void clear_memory(void* begin, std::size_t bytes, Stream stream);

// The 32 bits of a piece that belong into word `word` of its destination, in place; others zero.
RAPIDSMPF_HOST_DEVICE inline std::uint32_t bits_for_word(BitPiece const& piece, std::int64_t word) noexcept {
    auto const first = word * 32 - piece.position;  // the bit of the source that becomes bit 0
    auto const begin = first < 0 ? -first : 0;      // the bits of the word that there are
    auto const end = piece.count - first < 32 ? piece.count - first : 32;
    if (end <= begin) {
        return 0;
    }
    auto const mask =
        static_cast<std::uint32_t>(((std::uint64_t{1} << end) - 1) & ~((std::uint64_t{1} << begin) - 1));
    if (piece.source == nullptr) {
        return mask;
    }
    if (first < 0) {
        return (piece.source[0] << -first) & mask;
    }
    auto const at = first >> 5;
    auto const shift = first & 31;
    std::uint64_t both = piece.source[at];
    if (shift != 0 && (at + 1) * 32 < piece.count) {
        both |= static_cast<std::uint64_t>(piece.source[at + 1]) << 32U;
    }
    return static_cast<std::uint32_t>(both >> shift) & mask;
}

}  // namespace rapidsmpf::detail

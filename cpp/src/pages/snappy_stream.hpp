// Snappy streams: chains of elements (a literal, or a copy of what was decoded before), each of which says where the next begins.
// A stream is divided into tiles of 2,048 bytes, and a tile into segments of 64, one for a lane.
//
// What this reads comes from outside; no input makes it read outside of the stream, but for the rest of a word.
#pragma once

#include <cstdint>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"

namespace rapidsmpf::pages::snappy {

inline constexpr std::uint32_t segment_bytes = 64;
inline constexpr std::uint32_t tile_bytes = segment_bytes * lane_count;
inline constexpr std::uint32_t fragment_bytes = 65536;

struct Stream {
    std::uint8_t const* data{nullptr};
    std::uint32_t bytes{0};
    std::uint8_t* out{nullptr};
    std::uint32_t out_bytes{0};
};

// A tile and what follows it, in memory that the lanes share. After 16 words one is free, so that lanes that read the same place
// of their segments read different banks.
struct TileInput {
    static constexpr std::uint32_t bytes = tile_bytes + segment_bytes;
    std::uint32_t words[(bytes / 4) + (bytes / 64) + 1];
};

struct Element {
    std::uint32_t advance{0};  // bytes up to the next element; clamped
    std::uint32_t length{0};   // bytes that it makes; clamped
    std::uint32_t header{0};   // bytes before those of a literal
    std::uint32_t offset{0};   // of a copy; 0 for a literal, and for a copy that is an error
    bool is_literal{false};
};

// Whether it is a literal whose length takes bytes of its own. `kind` and `size`: the lower two and the upper six bits of the
// element's first byte.
[[nodiscard]] RAPIDSMPF_DEVICE bool has_long_length(std::uint32_t kind, std::uint32_t size) {
    return kind == 0 && size >= 60;
}

// Bytes up to the next element, of every element that has_long_length() is not true of.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t short_advance(std::uint32_t kind, std::uint32_t size) {
    return kind == 0 ? 2 + size : kind == 3 ? 5 : 1 + kind;
}

// From the first bytes of an element: `low` the first four, `fifth` the one after.
[[nodiscard]] RAPIDSMPF_DEVICE Element element_of(std::uint32_t low, std::uint32_t fifth) {
    Element element;
    auto const kind = low & 3U;
    auto const size = (low >> 2U) & 63U;
    if (kind == 0) {
        element.is_literal = true;
        auto length = size;
        element.header = 1;
        if (size >= 60) {
            auto const extra = size - 59;
            auto const after = (low >> 8U) | (fifth << 24U);
            length = extra == 4 ? after : after & ((1U << (8 * extra)) - 1);
            element.header = 1 + extra;
        }
        // Longer than any page: positions must not overflow.
        constexpr std::uint32_t most = 0x7ffffff0U;
        length = length > most ? most : length;
        element.length = length + 1;
        element.advance = element.header + element.length;
    } else if (kind == 1) {
        element.length = 4 + (size & 7U);
        element.advance = 2;
        element.offset = ((low & 0xe0U) << 3U) | ((low >> 8U) & 0xffU);
    } else if (kind == 2) {
        element.length = 1 + size;
        element.advance = 3;
        element.offset = (low >> 8U) & 0xffffU;
    } else {
        element.length = 1 + size;
        element.advance = 5;
        // No page is so long that it could be right.
        auto const offset = (low >> 8U) | (fifth << 24U);
        element.offset = offset < 0x80000000U ? offset : 0;
    }
    return element;
}

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t word_place(std::uint32_t word) {
    return word + (word >> 4U);
}

// The element at a place of the tile.
[[nodiscard]] RAPIDSMPF_DEVICE Element element_in(TileInput const& input, std::uint32_t place) {
    auto const word = place >> 2U;
    auto const first = input.words[word_place(word)];
    auto const second = input.words[word_place(word + 1)];
    auto const byte = place & 3U;
    return element_of(joined_words(first, second, byte), (second >> (8 * byte)) & 0xffU);
}

[[nodiscard]] RAPIDSMPF_DEVICE std::uint8_t input_byte(TileInput const& input, std::uint32_t place) {
    return static_cast<std::uint8_t>(input.words[word_place(place >> 2U)] >> (8 * (place & 3U)));
}

// The element at a place of the stream. Bytes behind its end are taken for zeros.
[[nodiscard]] RAPIDSMPF_DEVICE Element element_at(Stream const& stream, std::uint32_t place) {
    std::uint32_t low = 0;
    for (std::uint32_t i = 0; i < 4 && place + i < stream.bytes; ++i) {
        low |= static_cast<std::uint32_t>(stream.data[place + i]) << (8 * i);
    }
    return element_of(low, place + 4 < stream.bytes ? stream.data[place + 4] : 0);
}

// The length that the stream says it has when it is decompressed, before the first element; false if it says none.
RAPIDSMPF_DEVICE bool read_length(
    std::uint8_t const* data, std::uint32_t bytes, std::uint32_t& length, std::uint32_t& first) {
    length = 0;
    for (first = 0; first < 5 && first < bytes;) {
        auto const next = data[first];
        length |= static_cast<std::uint32_t>(next & 0x7fU) << (7 * first);
        ++first;
        if (next < 0x80U) {
            return true;
        }
    }
    return false;
}

template <typename Lanes>
RAPIDSMPF_DEVICE void load_tile(
    Lanes const& lanes, Stream const stream, std::uint32_t tile, TileInput& input) {
    auto const begin = tile * tile_bytes;
    auto const* const from = stream.data + begin;
    auto const left = stream.bytes - begin;
    // Whole words of memory, each joined of two: the page may begin anywhere.
    auto const shift = misalignment(from);
    auto const* const words = from - shift;
    lanes.each([&](std::uint32_t lane) {
        for (auto word = lane; word < TileInput::bytes / 4; word += lane_count) {
            std::uint32_t value = 0;
            if (4 * word < left) {
                auto const low = load_word(words + 4 * word);
                // The second word has a byte of the page in it, or is not read.
                auto const high =
                    shift != 0 && 4 * word + 4 - shift < left ? load_word(words + 4 * word + 4) : 0;
                value = joined_words(low, high, shift);
                auto const whole = left - 4 * word;
                if (whole < 4) {
                    value &= (1U << (8 * whole)) - 1;
                }
            }
            input.words[word_place(word)] = value;
        }
    });
}

}  // namespace rapidsmpf::pages::snappy

// Where the elements of a Snappy stream begin, found for many tiles at a time. Decoders that follow the chain from its first
// element are as slow as one thread.
//
// 1. find_exits(), tile by tile, independent of each other: for each place where a chain may come into the tile, where it leaves
//    it and how much it makes. A lane makes a table of its segment from the last byte back: the chain from a place is that
//    from the place where the element there ends, and one element more.
// 2. chain_tiles(), stream by stream: one look into a table a tile.
#pragma once

#include <cstdint>

#include "pages/lanes.hpp"
#include "pages/snappy_stream.hpp"

namespace rapidsmpf::pages::snappy {

// Where a chain leaves a tile, counted from its first byte, and how many bytes its elements there make.
struct Exit {
    std::uint32_t place{0};
    std::uint32_t out{0};
};

// What is known of a tile when chains are joined.
struct Tile {
    std::uint32_t entry{0};  // place in the stream of its first element; not before its end if it has none
    std::uint32_t out{0};    // where its output begins
};

// For each place of a segment, what the chain from there on does in this segment. In the low byte where it leaves it, counted
// from its first byte; or, with the highest bit, the place of an element of which that is not said here: a literal with a length
// of its own, or the end of the stream. Above, the sum of the weights of the elements before that. Lanes use different banks.
template <typename Word>
struct SegmentTable {
    static constexpr std::uint32_t stop = 0x80U;
    Word of[tile_bytes];

    [[nodiscard]] RAPIDSMPF_DEVICE static std::uint32_t index(std::uint32_t segment, std::uint32_t place) {
        return place * lane_count + segment;
    }
};

struct LengthOf {
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t operator()(std::uint32_t kind, std::uint32_t size) const {
        return kind == 1 ? 4 + (size & 7U) : 1 + size;
    }
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t operator()(Element const& element) const {
        return element.length;
    }
};

struct One {
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t operator()(std::uint32_t, std::uint32_t) const { return 1; }
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t operator()(Element const&) const { return 1; }
};

// `left`: bytes of the stream from the tile's first on.
template <typename Lanes, typename Word, typename Weight>
RAPIDSMPF_DEVICE void make_table(
    Lanes const& lanes, TileInput const& input, std::uint32_t left, SegmentTable<Word>& table,
    Weight weight) {
    constexpr std::uint32_t word_bytes = 4;
    lanes.each([&](std::uint32_t segment) {
        auto const stream_end = left > segment * segment_bytes ? left - segment * segment_bytes : 0;
        for (auto word = segment_bytes / word_bytes; word-- > 0;) {
            auto const heads = input.words[word_place(segment * (segment_bytes / word_bytes) + word)];
            RAPIDSMPF_UNROLL
            for (auto byte = word_bytes; byte-- > 0;) {
                auto const place = word * word_bytes + byte;
                auto const kind = heads >> (8 * byte) & 3U;
                auto const size = heads >> (8 * byte + 2) & 63U;
                auto const next = place + short_advance(kind, size);
                std::uint32_t known = next;
                if (next < segment_bytes) {
                    known = table.of[table.index(segment, next)];
                }
                auto const is_stop = has_long_length(kind, size) || place >= stream_end;
                known = is_stop ? table.stop | place : known + (weight(kind, size) << 8U);
                table.of[table.index(segment, place)] = static_cast<Word>(known);
            }
        }
    });
}

// Follows a chain through the tile. Calls passes(segment, place, weights) for each part of it that a table tells, and returns
// where the chain leaves the tile, or ends; places are counted from the tile's first byte.
template <typename Word, typename Weight, typename Passes>
RAPIDSMPF_DEVICE std::uint32_t follow_chain(
    TileInput const& input, std::uint32_t left, SegmentTable<Word> const& table, Weight weight,
    std::uint32_t place, Passes&& passes) {
    auto const limit = left < tile_bytes ? left : tile_bytes;
    while (place < limit) {
        auto const segment = place / segment_bytes;
        std::uint32_t const known = table.of[table.index(segment, place % segment_bytes)];
        auto weights = known >> 8U;
        auto const from = place;
        place = segment * segment_bytes + (known & (table.stop - 1));
        if ((known & table.stop) != 0 && place < left) {
            auto const element = element_in(input, place);
            weights += weight(element);
            place += element.advance;
        }
        passes(segment, from % segment_bytes, weights);
        if ((known & table.stop) != 0 && place >= left) {
            break;
        }
    }
    return place;
}

// Where the chain leaves the tile that comes in at that place.
[[nodiscard]] RAPIDSMPF_DEVICE Exit exit_of(
    TileInput const& input, std::uint32_t left, SegmentTable<std::uint32_t> const& table,
    std::uint32_t entry) {
    Exit exit;
    exit.place = follow_chain(
        input, left, table, LengthOf{}, entry,
        [&](std::uint32_t, std::uint32_t, std::uint32_t out) { exit.out += out; });
    return exit;
}

// Writes the exits of chains that come in at the first places of the tile, a segment of them.
template <typename Lanes>
RAPIDSMPF_DEVICE void find_exits(
    Lanes const& lanes, Stream const stream, std::uint32_t tile, TileInput& input,
    SegmentTable<std::uint32_t>& table, Exit* exits) {
    load_tile(lanes, stream, tile, input);
    auto const left = stream.bytes - tile * tile_bytes;
    make_table(lanes, input, left, table, LengthOf{});
    lanes.each([&](std::uint32_t lane) {
        for (auto entry = lane; entry < segment_bytes; entry += lane_count) {
            exits[entry] = exit_of(input, left, table, entry);
        }
    });
}

// Where the chain comes into each of the stream's `n` tiles. False if it does not end where the stream ends, or does not make
// as many bytes as that says. `first`: where the first element begins; `exits`: what find_exits() wrote, tile by tile.
template <typename Lanes>
RAPIDSMPF_DEVICE bool chain_tiles(
    Lanes const& lanes, Stream const stream, std::uint32_t first, std::uint32_t n, Exit const* exits,
    TileInput& input, SegmentTable<std::uint32_t>& table, Tile* tiles) {
    auto place = first;
    std::uint32_t made = 0;
    for (std::uint32_t tile = 0; tile < n; ++tile) {
        auto const begin = tile * tile_bytes;
        lanes.each([&](std::uint32_t lane) {
            if (lane == 0) {
                tiles[tile] = Tile{.entry = place, .out = made};
            }
        });
        if (place >= begin + tile_bytes || place >= stream.bytes) {
            continue;
        }
        auto const entry = place - begin;
        Exit exit;
        if (entry < segment_bytes) {
            exit = exits[std::uint64_t{tile} * segment_bytes + entry];
        } else {
            // Behind a long literal. All lanes find the same.
            load_tile(lanes, stream, tile, input);
            make_table(lanes, input, stream.bytes - begin, table, LengthOf{});
            exit = exit_of(input, stream.bytes - begin, table, entry);
        }
        place = begin + exit.place;
        made += exit.out;
        if (made > stream.out_bytes) {
            return false;
        }
    }
    return place == stream.bytes && made == stream.out_bytes;
}

}  // namespace rapidsmpf::pages::snappy

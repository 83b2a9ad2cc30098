// Decodes Snappy streams by fragments of 64 KiB, independently: compressors treat each 64 KiB of their input by itself.
//
// Lanes take 32 elements, then 64 bytes of output at a time; a byte that is copied from one of the same 64 follows that one's
// source, in as many rounds as the depth has bits.
//
// Streams that no compressor writes (elements or copies over the border of a fragment) are reported, not decoded; no input makes
// this write outside of the fragment.
#pragma once

#include <cstdint>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/snappy_stream.hpp"
#include "pages/snappy_tiles.hpp"

namespace rapidsmpf::pages::snappy {

// What the lanes share to decode.
struct Scratch {
    TileInput input;
    union {
        SegmentTable<std::uint16_t> table;       // until it is known where each segment's chain begins
        std::uint16_t elements[tile_bytes / 2];  // where they begin in the tile
    };
};

// Lists where the elements of the tile begin, in scratch.elements; returns how many there are.
template <typename Lanes>
RAPIDSMPF_DEVICE std::uint32_t list_elements(
    Lanes const& lanes, Stream const stream, std::uint32_t tile, std::uint32_t entry, Scratch& scratch) {
    load_tile(lanes, stream, tile, scratch.input);
    auto const left = stream.bytes - tile * tile_bytes;
    make_table(lanes, scratch.input, left, scratch.table, One{});
    typename Lanes::template Value<std::uint32_t> first;  // of a lane's segment
    typename Lanes::template Value<std::uint32_t> count;
    lanes.each([&](std::uint32_t lane) {
        first[lane] = 0;
        count[lane] = 0;
    });
    follow_chain(
        scratch.input, left, scratch.table, One{}, entry,
        [&](std::uint32_t segment, std::uint32_t place, std::uint32_t elements) {
            lanes.each([&](std::uint32_t lane) {
                if (lane == segment) {
                    first[lane] = count[lane] == 0 ? place : first[lane];
                    count[lane] += elements;
                }
            });
        });
    std::uint32_t total = 0;
    auto const before = lanes.sums_before(count, total);
    lanes.each([&](std::uint32_t lane) {
        auto place = lane * segment_bytes + first[lane];
        for (std::uint32_t i = 0; i < count[lane]; ++i) {
            scratch.elements[before[lane] + i] = static_cast<std::uint16_t>(place);
            auto const head = std::uint32_t{input_byte(scratch.input, place)};
            auto const kind = head & 3U;
            auto const size = head >> 2U;
            place += has_long_length(kind, size) ? element_in(scratch.input, place).advance
                                                 : short_advance(kind, size);
        }
    });
    return total;
}

// Elements that lanes hold, one each; those without length are none.
template <typename Lanes>
struct Elements {
    typename Lanes::template Value<std::uint32_t>
        start;  // where their output begins; far behind its end if there is none
    typename Lanes::template Value<std::uint32_t> length;  // of it
    typename Lanes::template Value<std::uint32_t>
        source;              // of a literal the place of its bytes in the stream; of a copy its offset
    std::uint32_t first{0};  // bytes of output that they make
    std::uint32_t end{0};
};

inline constexpr std::uint32_t literal_bit = 0x80000000U;  // of Elements::source

// The elements of the list from number `k` on.
template <typename Lanes>
RAPIDSMPF_DEVICE Elements<Lanes> take_elements(
    Lanes const& lanes, Scratch const& scratch, std::uint32_t tile_begin, std::uint32_t k,
    std::uint32_t count, std::uint32_t out) {
    Elements<Lanes> elements;
    lanes.each([&](std::uint32_t lane) {
        elements.length[lane] = 0;
        elements.source[lane] = 0;
        if (k + lane < count) {
            auto const place = std::uint32_t{scratch.elements[k + lane]};
            auto const element = element_in(scratch.input, place);
            elements.length[lane] = element.length;
            elements.source[lane] =
                element.is_literal ? literal_bit | (tile_begin + place + element.header) : element.offset;
        }
    });
    std::uint32_t total = 0;
    elements.start = lanes.sums_before(elements.length, total);
    lanes.each([&](std::uint32_t lane) {
        elements.start[lane] = elements.length[lane] != 0 ? elements.start[lane] + out : 0xffffffffU;
    });
    elements.first = out;
    elements.end = out + total;
    return elements;
}

// Whether those between begin and end are wholly there, and copy from there.
template <typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE bool are_within(
    Lanes const& lanes, Elements<Lanes> const& elements, std::uint32_t begin, std::uint32_t end) {
    typename Lanes::template Value<bool> is_wrong;
    lanes.each([&](std::uint32_t lane) {
        auto const start = elements.start[lane];
        auto const length = elements.length[lane];
        auto const source = elements.source[lane];
        auto const is_here = start < end && start + length > begin;
        auto const is_copy = (source & literal_bit) == 0;
        is_wrong[lane] = is_here
                         && (start < begin || start + length > end
                             || (is_copy && (source == 0 || source > start - begin)));
    });
    return lanes.ballot(is_wrong) == 0;
}

// Makes the bytes of the elements that are between begin and end.
template <typename Lanes>
RAPIDSMPF_DEVICE void make_bytes(
    Lanes const& lanes, Stream const stream, Elements<Lanes> const& elements, std::uint32_t begin,
    std::uint32_t end) {
    using Number = typename Lanes::template Value<std::uint32_t>;
    auto const last = elements.end < end ? elements.end : end;
    auto window = elements.first > begin ? elements.first : begin;
    // Elements that begin before the window.
    typename Lanes::template Value<bool> is_earlier;
    lanes.each([&](std::uint32_t lane) { is_earlier[lane] = elements.start[lane] < window; });
    auto earlier = count_bits(lanes.ballot(is_earlier));
    // Each lane makes two bytes: the instructions for one run while the other is loaded.
    constexpr std::uint32_t window_bytes = 2 * lane_count;
    while (window < last) {
        Number starts[2];
        lanes.each([&](std::uint32_t lane) {
            auto const ahead = elements.start[lane] - window;  // large if it is earlier
            auto const bit = 1U << (ahead % lane_count);
            starts[0][lane] = ahead < lane_count ? bit : 0;
            starts[1][lane] = ahead - lane_count < lane_count ? bit : 0;
        });
        std::uint32_t const start_bits[2] = {lanes.any_bits(starts[0]), lanes.any_bits(starts[1])};
        if ((start_bits[0] | start_bits[1]) == 0) {
            // All bytes are of one element. A long literal is copied by itself.
            auto const source = lanes.of_lane(elements.source, earlier - 1);
            auto const start = lanes.of_lane(elements.start, earlier - 1);
            auto const stop = start + lanes.of_lane(elements.length, earlier - 1);
            auto const bytes = (stop < last ? stop : last) - window;
            if ((source & literal_bit) != 0 && bytes >= 2 * window_bytes) {
                copy_bytes(
                    lanes, stream.data + (source ^ literal_bit) + (window - start), stream.out + window,
                    bytes);
                window += bytes;
                continue;
            }
        }
        Number owner[2];
        lanes.each([&](std::uint32_t lane) {
            auto const up_to_lane = 0xffffffffU >> (31 - lane);
            owner[0][lane] = earlier + count_bits(start_bits[0] & up_to_lane) - 1;
            owner[1][lane] = earlier + count_bits(start_bits[0]) + count_bits(start_bits[1] & up_to_lane) - 1;
        });
        earlier += count_bits(start_bits[0]) + count_bits(start_bits[1]);
        Number const owner_start[2] = {
            lanes.from(elements.start, owner[0]), lanes.from(elements.start, owner[1])};
        Number const owner_source[2] = {
            lanes.from(elements.source, owner[0]), lanes.from(elements.source, owner[1])};
        // Where a byte comes from: with literal_bit a place in the stream, without one in the output.
        Number from[2];
        typename Lanes::template Value<bool> waits;
        // An offset is never larger than the place, so that only bytes of this window are not before it.
        auto const is_waiting = [&](std::uint32_t source) {
            return (source & literal_bit) == 0 && source >= window;
        };
        lanes.each([&](std::uint32_t lane) {
            for (std::uint32_t i = 0; i < 2; ++i) {
                auto const place = window + i * lane_count + lane;
                auto const source = owner_source[i][lane];
                auto const is_literal = (source & literal_bit) != 0;
                from[i][lane] = is_literal ? source + (place - owner_start[i][lane]) : place - source;
                from[i][lane] = place < last ? from[i][lane] : literal_bit;
            }
            waits[lane] = is_waiting(from[0][lane]) || is_waiting(from[1][lane]);
        });
        while (lanes.ballot(waits) != 0) {
            Number next[2];
            for (std::uint32_t i = 0; i < 2; ++i) {
                Number other;
                lanes.each([&](std::uint32_t lane) { other[lane] = (from[i][lane] - window) % lane_count; });
                auto const first = lanes.from(from[0], other);
                auto const second = lanes.from(from[1], other);
                lanes.each([&](std::uint32_t lane) {
                    auto const known = from[i][lane] - window < lane_count ? first[lane] : second[lane];
                    next[i][lane] = is_waiting(from[i][lane]) ? known : from[i][lane];
                });
            }
            lanes.each([&](std::uint32_t lane) {
                from[0][lane] = next[0][lane];
                from[1][lane] = next[1][lane];
                waits[lane] = is_waiting(from[0][lane]) || is_waiting(from[1][lane]);
            });
        }
        lanes.each([&](std::uint32_t lane) {
            std::uint8_t values[2];
            for (std::uint32_t i = 0; i < 2; ++i) {
                // One read for both: lanes would wait for each other otherwise. What was written just now is in the cache.
                auto const* const source = (from[i][lane] & literal_bit) != 0
                                               ? stream.data + (from[i][lane] ^ literal_bit)
                                               : stream.out + from[i][lane];
                values[i] = window + i * lane_count + lane < last ? *source : std::uint8_t{0};
            }
            for (std::uint32_t i = 0; i < 2; ++i) {
                auto const place = window + i * lane_count + lane;
                if (place < last) {
                    stream.out[place] = values[i];
                }
            }
        });
        window += window_bytes;
    }
}

// Decodes bytes begin to end of the output, which are one fragment. False if they cannot be decoded by themselves.
template <typename Lanes>
RAPIDSMPF_DEVICE bool decode_fragment(
    Lanes const& lanes, Stream const stream, std::uint32_t begin, std::uint32_t end, std::uint32_t n,
    Tile const* tiles, Scratch& scratch) {
    // The last tile whose output does not begin behind the fragment's first byte.
    std::uint32_t tile = 0;
    for (auto after = n; after - tile > 1;) {
        auto const middle = tile + (after - tile) / 2;
        (tiles[middle].out <= begin ? tile : after) = middle;
    }
    // Tiles without output have the same place as the next that has.
    while (tile > 0 && tiles[tile].out == begin) {
        --tile;
    }
    for (; tile < n && tiles[tile].out < end; ++tile) {
        auto const tile_begin = tile * tile_bytes;
        auto const entry = tiles[tile].entry;
        if (entry >= tile_begin + tile_bytes || entry >= stream.bytes) {
            continue;
        }
        auto const count = list_elements(lanes, stream, tile, entry - tile_begin, scratch);
        auto out = tiles[tile].out;
        for (std::uint32_t k = 0; k < count && out < end; k += lane_count) {
            auto const elements = take_elements(lanes, scratch, tile_begin, k, count, out);
            out = elements.end;
            if (out > begin) {
                if (!are_within(lanes, elements, begin, end)) {
                    return false;
                }
                make_bytes(lanes, stream, elements, begin, end);
            }
        }
    }
    return true;
}

}  // namespace rapidsmpf::pages::snappy

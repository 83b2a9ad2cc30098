// The steps of number_strings.hpp, each of which a kernel does for all items at a time, and the CPU one after the other:
//
//   list_strings()   per chunk, by one lane: copies the headers, lists the pages and their tiles
//   find_exits()     per tile: for each of its first offsets, the end of the chain of strings that would start there
//   chain_page()     per page: the offset of the first string of each tile, by one table lookup per tile
//   number_tile()    per tile: writes the table entries and the indices of the strings that start in it
//
// snappy_tiles.hpp finds the elements of Snappy streams in the same way. A place is an offset in bytes: in a page, from the aligned
// word in which its first string starts; in a tile, from the start of the tile.
#pragma once

#include <cstdint>

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/page_header.hpp"
#include "pages/plain_page.hpp"

namespace rapidsmpf::pages {

// The body of a page: bytes that are copied unchanged (levels, indices), then strings, each with a length prefix.
struct StringPage {
    std::uint8_t const* data{nullptr};
    std::uint8_t* out{nullptr};
    std::uint32_t copied{0};
    std::uint32_t bytes{0};  // of the strings and their length prefixes
    std::uint32_t first{0};  // index of its first string in NumberPlan::places
    std::uint32_t most{0};   // strings at most
    bool has_all{false};     // the page has exactly `most` strings, as a dictionary page does
    std::uint32_t first_tile{0};
    std::uint32_t tiles{0};

    [[nodiscard]] RAPIDSMPF_DEVICE std::uint8_t const* strings() const { return data + copied; }
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t begin() const { return misalignment(strings()); }
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t end() const { return begin() + bytes; }
};

// Of the chain that starts at some offset of a tile: where its last string in the tile ends, and how many strings it has there.
struct StringExit {
    static constexpr std::uint32_t wrong = 0xffffffffU;
    std::uint32_t place{wrong};
    std::uint32_t strings{0};
};

// What chain_page() finds out about a tile.
struct StringTile {
    std::uint32_t entry{
        0};  // place in the page of the first string that starts in the tile; behind the tile if none does
    std::uint32_t strings{0};  // of the page that start before it
};

// The size of the length prefix, which is the least that a string takes.
inline constexpr std::uint32_t length_bytes = 4;

template <typename Lanes>
RAPIDSMPF_DEVICE void fail(NumberPlan const& plan, Problem problem) {
    Lanes::raise(plan.counters->error, static_cast<std::uint32_t>(problem));
}

// Decides what is copied of a page and where its strings are. `data`: the body of the page.
[[nodiscard]] RAPIDSMPF_DEVICE Problem
plan_page(StringChunk const& chunk, PageHeader const& header, std::uint8_t const* data, StringPage& page) {
    auto const bytes = header.uncompressed_bytes;
    page.data = data;
    if (header.type == PageHeader::dictionary) {
        if (!is_plain_dictionary(header)) {
            return Problem::encoding;
        }
        page.bytes = bytes;
        page.has_all = true;
        // The count comes from the file and decides how much memory is allocated.
        if (header.dictionary_values < 0 || header.dictionary_values > bytes / length_bytes) {
            return Problem::strings;
        }
        page.most = static_cast<std::uint32_t>(header.dictionary_values);
        return Problem::none;
    }
    if (header.type == PageHeader::index || has_dictionary_indices(header)) {
        page.copied = bytes;
        return Problem::none;
    }
    if (header.encoding != Encoding::plain) {
        return Problem::encoding;
    }
    Levels levels;
    if (auto const problem = find_levels(header, chunk.has_levels, data, levels); problem != Problem::none) {
        return problem;
    }
    page.copied = levels.end();
    page.bytes = bytes - page.copied;
    auto const room = page.bytes / length_bytes;
    page.most = header.values < room ? static_cast<std::uint32_t>(header.values) : room;
    return Problem::none;
}

// A tile in shared memory. Each lane works on one segment of it.
struct StringScratch {
    static constexpr std::uint32_t segment_words = 16;
    static constexpr std::uint32_t segment_bytes = 4 * segment_words;
    static constexpr std::uint32_t tile_bytes = lane_count * segment_bytes;
    static constexpr std::uint32_t entries =
        2 * segment_bytes;  // places that a chain may come in at, for find_exits()
    static constexpr std::uint32_t none = 0xff;

    // One word more than the tile, because a length prefix may cross its end. A word of padding follows each segment, so that lanes
    // which read the same word of their segments read from different banks.
    static constexpr std::uint32_t words = tile_bytes / 4 + 1;
    std::uint32_t tile[words + words / segment_words + 1];
    // For each offset in a segment, of the chain that starts there: in the low byte the offset of its last string in the segment, in
    // the high byte how many strings it has in the segment.
    std::uint16_t chains[segment_bytes][lane_count];
    std::uint8_t
        first[lane_count];  // offset in the segment of its first string; none: no string starts in it
};

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t& tile_word(StringScratch& scratch, std::uint32_t word) {
    return scratch.tile[word + word / StringScratch::segment_words];
}

// The length prefix at a place of the tile.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t length_at(StringScratch& scratch, std::uint32_t place) {
    auto const word = place / 4;
    auto const high = place % 4 != 0 ? tile_word(scratch, word + 1) : 0;
    return joined_words(tile_word(scratch, word), high, place % 4);
}

// Whether a string of this length at this place is inside the page, which ends at `end`.
[[nodiscard]] RAPIDSMPF_DEVICE bool fits(std::uint32_t length, std::uint32_t place, std::uint32_t end) {
    return place < end && end - place >= length_bytes && length <= end - place - length_bytes;
}

// Called by all lanes. Words behind the end of the page are not read.
RAPIDSMPF_DEVICE void load_tile(
    StringScratch& scratch, std::uint32_t lane, std::uint8_t const* tile, std::uint32_t end) {
    constexpr std::uint32_t at_a_time = 17;  // loads that a lane has in flight
    auto const words = end / 4 + (end % 4 != 0 ? 1 : 0);
    std::uint32_t values[at_a_time];
    RAPIDSMPF_UNROLL
    for (std::uint32_t i = 0; i < at_a_time; ++i) {
        auto const word = lane + i * lane_count;
        auto const is_there = word < StringScratch::words && word < words;
        values[i] = is_there ? load_word(tile + std::uint64_t{4} * word) : 0;
    }
    RAPIDSMPF_UNROLL
    for (std::uint32_t i = 0; i < at_a_time; ++i) {
        auto const word = lane + i * lane_count;
        if (word < StringScratch::words) {
            tile_word(scratch, word) = values[i];
        }
    }
}

// Fills a lane's column of StringScratch::chains from the last offset to the first. A string takes at least four bytes, so the four
// offsets of one word do not depend on each other.
RAPIDSMPF_DEVICE void find_chains(StringScratch& scratch, std::uint32_t lane, std::uint32_t end) {
    auto const segment = lane * StringScratch::segment_bytes;
    auto high = tile_word(scratch, (lane + 1) * StringScratch::segment_words);
    for (std::uint32_t word = StringScratch::segment_words; word-- > 0;) {
        auto const low = tile_word(scratch, lane * StringScratch::segment_words + word);
        std::uint16_t found[4];
        RAPIDSMPF_UNROLL
        for (std::uint32_t byte = 0; byte < 4; ++byte) {
            constexpr std::uint32_t one = 1U << 8U;
            auto const at = 4 * word + byte;
            auto const length = joined_words(low, high, byte);
            // The sum may overflow; it is used only if the length is small.
            auto const next = at + length_bytes + length;
            auto const stays = length < StringScratch::segment_bytes && next < StringScratch::segment_bytes
                               && segment + next < end && fits(length, segment + at, end);
            found[byte] = static_cast<std::uint16_t>(one + (stays ? scratch.chains[next][lane] : at));
        }
        RAPIDSMPF_UNROLL
        for (std::uint32_t byte = 0; byte < 4; ++byte) {
            scratch.chains[4 * word + byte][lane] = found[byte];
        }
        high = low;
    }
}

// Follows the chain that starts at a place of the tile. Calls enters(segment, offset in it) for each segment in which one of its
// strings starts. The page ends at `end`.
template <typename Enters>
RAPIDSMPF_DEVICE StringExit
follow_chain(StringScratch& scratch, std::uint32_t place, std::uint32_t end, Enters&& enters) {
    StringExit exit;
    while (place < end && place < StringScratch::tile_bytes) {
        auto const segment = place / StringScratch::segment_bytes;
        auto const first = place % StringScratch::segment_bytes;
        enters(segment, first);
        auto const chain = std::uint32_t{scratch.chains[first][segment]};
        exit.strings += chain >> 8U;
        place = segment * StringScratch::segment_bytes + (chain & 0xffU);
        auto const length = length_at(scratch, place);
        if (!fits(length, place, end)) {
            return exit;
        }
        place += length_bytes + length;
    }
    exit.place = place;
    return exit;
}

// The start of a tile, and the end of its page as an offset from there.
struct TilePlace {
    std::uint8_t const* data{nullptr};
    std::uint32_t end{0};
};

[[nodiscard]] RAPIDSMPF_DEVICE TilePlace place_of_tile(StringPage const& page, std::uint32_t tile) {
    auto const begin = tile * StringScratch::tile_bytes;
    return {.data = page.strings() - page.begin() + begin, .end = page.end() - begin};
}

template <typename Lanes>
RAPIDSMPF_DEVICE void prepare_tile(Lanes const& lanes, TilePlace const& tile, StringScratch& scratch) {
    lanes.each([&](std::uint32_t lane) { load_tile(scratch, lane, tile.data, tile.end); });
    lanes.each([&](std::uint32_t lane) { find_chains(scratch, lane, tile.end); });
}

// Of a chunk, by one lane: copies the headers, lists the pages.
template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_strings(NumberPlan const& plan, StringChunk const& chunk) {
    std::uint64_t place = 0;
    std::uint64_t values = 0;
    auto& found = plan.chunk_strings[&chunk - plan.chunks];
    while (values < chunk.values && place < chunk.bytes) {
        PageHeader header;
        auto const* const data = chunk.data + place;
        if (!read_plain_page(chunk.data, chunk.bytes, place, header)) {
            return Problem::header;
        }
        for (std::uint32_t i = 0; i < header.bytes; ++i) {
            chunk.out[place + i] = data[i];
        }
        place += header.bytes;
        StringPage page;
        page.out = chunk.out + place;
        if (auto const problem = plan_page(chunk, header, chunk.data + place, page);
            problem != Problem::none) {
            return problem;
        }
        constexpr std::uint32_t most_strings = 0x7fffffff;
        page.first = Lanes::add(plan.counters->strings, page.most);
        auto const number = Lanes::add(plan.counters->pages, 1);
        if (number >= plan.most_pages || page.first > most_strings || page.most > most_strings - page.first) {
            return Problem::room;
        }
        if (page.has_all) {
            if (found.dictionary_strings != 0) {
                return Problem::encoding;  // a chunk has one dictionary
            }
            found.first = page.first;
            found.dictionary_strings = page.most;
        } else {
            found.plain_strings += page.most;
        }
        page.tiles = page.bytes == 0 ? 0 : (page.end() - 1) / StringScratch::tile_bytes + 1;
        page.first_tile = Lanes::add(plan.counters->tiles, page.tiles);
        if (page.first_tile > plan.most_tiles || page.tiles > plan.most_tiles - page.first_tile) {
            return Problem::room;
        }
        for (std::uint32_t i = 0; i < page.tiles; ++i) {
            plan.tile_pages[page.first_tile + i] = number;
        }
        plan.pages[number] = page;
        place += header.uncompressed_bytes;
        values += static_cast<std::uint64_t>(header.values);
    }
    return values >= chunk.values ? Problem::none : Problem::header;
}

template <typename Lanes>
RAPIDSMPF_DEVICE void find_exits(
    Lanes const& lanes, NumberPlan const& plan, std::uint32_t number, StringScratch& scratch) {
    auto const page = plan.pages[plan.tile_pages[number]];
    auto const tile = place_of_tile(page, number - page.first_tile);
    prepare_tile(lanes, tile, scratch);
    auto* const exits = plan.exits + std::uint64_t{number} * StringScratch::entries;
    lanes.each([&](std::uint32_t lane) {
        for (auto entry = lane; entry < StringScratch::entries; entry += lane_count) {
            exits[entry] = follow_chain(scratch, entry, tile.end, [](std::uint32_t, std::uint32_t) {});
        }
    });
}

template <typename Lanes>
RAPIDSMPF_DEVICE void chain_page(
    Lanes const& lanes, NumberPlan const& plan, std::uint32_t number, StringScratch& scratch) {
    auto const page = plan.pages[number];
    copy_bytes(lanes, page.data, page.out, page.copied);
    auto place = page.begin();
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < page.tiles; ++i) {
        lanes.each([&](std::uint32_t lane) {
            if (lane == 0) {
                plan.tiles[page.first_tile + i] = StringTile{.entry = place, .strings = found};
            }
        });
        auto const begin = i * StringScratch::tile_bytes;
        if (place >= page.end() || place - begin >= StringScratch::tile_bytes) {
            continue;
        }
        StringExit exit;
        if (place - begin < StringScratch::entries) {
            exit = plan.exits[std::uint64_t{page.first_tile + i} * StringScratch::entries + (place - begin)];
        } else {
            // A long string ends here. All lanes compute the same.
            auto const tile = place_of_tile(page, i);
            prepare_tile(lanes, tile, scratch);
            exit = follow_chain(scratch, place - begin, tile.end, [](std::uint32_t, std::uint32_t) {});
            lanes.each([](std::uint32_t) {});  // all have read it before it is used again
        }
        if (exit.place == StringExit::wrong || exit.strings > page.most - found) {
            fail<Lanes>(plan, Problem::strings);
            return;
        }
        place = begin + exit.place;
        found += exit.strings;
    }
    if (page.has_all && found != page.most) {
        fail<Lanes>(plan, Problem::strings);
        return;
    }
    // `most` counts null values, too, which have no string.
    lanes.each([&](std::uint32_t lane) {
        for (auto i = found + lane; i < page.most; i += lane_count) {
            plan.places[page.first + i] = StringPlace{};
        }
    });
}

template <typename Lanes>
RAPIDSMPF_DEVICE void number_tile(
    Lanes const& lanes, NumberPlan const& plan, std::uint32_t number, StringScratch& scratch) {
    auto const page = plan.pages[plan.tile_pages[number]];
    auto const of_tile = plan.tiles[number];
    auto const begin = (number - page.first_tile) * StringScratch::tile_bytes;
    if (of_tile.entry >= page.end() || of_tile.entry - begin >= StringScratch::tile_bytes) {
        return;
    }
    auto const tile = place_of_tile(page, number - page.first_tile);
    lanes.each([&](std::uint32_t lane) { scratch.first[lane] = StringScratch::none; });
    prepare_tile(lanes, tile, scratch);
    lanes.each([&](std::uint32_t lane) {
        if (lane == 0) {
            (void)follow_chain(
                scratch, of_tile.entry - begin, tile.end, [&](std::uint32_t segment, std::uint32_t first) {
                    scratch.first[segment] = static_cast<std::uint8_t>(first);
                });
        }
    });
    typename Lanes::template Value<std::uint32_t> count;
    lanes.each([&](std::uint32_t lane) {
        auto const first = scratch.first[lane];
        count[lane] = first != StringScratch::none ? scratch.chains[first][lane] >> 8U : 0;
    });
    std::uint32_t total = 0;
    auto const before = lanes.sums_before(count, total);
    auto* const out = page.out + page.copied;
    lanes.each([&](std::uint32_t lane) {
        auto place = lane * StringScratch::segment_bytes + scratch.first[lane];
        for (std::uint32_t i = 0; i < count[lane]; ++i) {
            auto const length = length_at(scratch, place);
            auto const n = of_tile.strings + before[lane] + i;
            auto const string = page.first + n;
            plan.places[string] = StringPlace{
                .data = reinterpret_cast<char const*>(tile.data + place + length_bytes),
                .bytes = static_cast<std::int32_t>(length)};
            auto* const to = out + std::uint64_t{4} * n;
            for (std::uint32_t byte = 0; byte < 4; ++byte) {
                to[byte] = static_cast<std::uint8_t>(string >> (8 * byte));
            }
            place += length_bytes + length;
        }
    });
}

template <typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE StringPlace
place_of_row(NumberPlan const& plan, NumberedRows const& rows, std::uint64_t row) {
    if (rows.valid != nullptr && (rows.valid[row / 32] >> (row % 32) & 1U) == 0) {
        return {};
    }
    auto const number = static_cast<std::uint32_t>(rows.numbers[row]);
    if (number >= plan.counters->strings || plan.places[number].data == nullptr) {
        fail<Lanes>(plan, Problem::strings);
        return {};
    }
    return plan.places[number];
}

}  // namespace rapidsmpf::pages

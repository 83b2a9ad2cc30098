// What is decompressed in one go: column chunks, the pages in them, and the pieces of these that groups of lanes work on. The
// steps, each of which a kernel does for all items at a time, and the CPU one after the other:
//
//   list_pages()        of a chunk, by one lane: reads the headers, writes them anew, lists tiles and fragments
//   find_exits()        of a tile
//   chain_page()        of a page
//   decode_fragment()   of a fragment
#pragma once

#include <cstdint>

#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/page_header.hpp"
#include "pages/snappy_decode.hpp"
#include "pages/snappy_stream.hpp"
#include "pages/snappy_tiles.hpp"

namespace rapidsmpf::pages {

// What is compressed of a page.
struct Page {
    snappy::Stream stream;
    std::uint32_t first_element{0};
    std::uint32_t first_tile{0};
    std::uint32_t tiles{0};
};

// A part of a page's output: what one group of lanes makes. With no page it is copied from `data`.
struct Fragment {
    static constexpr std::uint32_t no_page = 0xffffffffU;
    std::uint32_t page{no_page};
    std::uint32_t begin{0};
    std::uint32_t end{0};
    std::uint8_t const* data{nullptr};
    std::uint8_t* out{nullptr};
};

template <typename Lanes>
RAPIDSMPF_DEVICE void fail(Plan const& plan, Problem problem) {
    Lanes::raise(plan.counters->error, static_cast<std::uint32_t>(problem));
}

// Of bytes that are copied as they are.
template <typename Lanes>
RAPIDSMPF_DEVICE bool list_copy(
    Plan const& plan, std::uint8_t const* data, std::uint8_t* out, std::uint32_t bytes) {
    auto const n = bytes / snappy::fragment_bytes + (bytes % snappy::fragment_bytes != 0 ? 1 : 0);
    auto const first = Lanes::add(plan.counters->fragments, n);
    if (first > plan.most_fragments || n > plan.most_fragments - first) {
        return false;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
        auto const begin = i * snappy::fragment_bytes;
        auto const left = bytes - begin;
        plan.fragments[first + i] = Fragment{
            .page = Fragment::no_page,
            .begin = 0,
            .end = left < snappy::fragment_bytes ? left : snappy::fragment_bytes,
            .data = data + begin,
            .out = out + begin};
    }
    return true;
}

// Lists what is to be done for a Snappy stream.
template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_stream(Plan const& plan, snappy::Stream const& stream) {
    std::uint32_t length = 0;
    std::uint32_t first = 0;
    if (!snappy::read_length(stream.data, stream.bytes, length, first) || length != stream.out_bytes) {
        return Problem::length;
    }
    // What could not be compressed, such as most pages of dictionary indices, is long literals: nothing has to be found out.
    constexpr std::uint32_t most_copies = 4;
    std::uint32_t from[most_copies];
    std::uint32_t bytes[most_copies];
    std::uint32_t copies = 0;
    auto place = first;
    std::uint64_t made = 0;
    for (; place < stream.bytes && copies < most_copies; ++copies) {
        auto const element = snappy::element_at(stream, place);
        auto const wanted = length < snappy::tile_bytes ? length : snappy::tile_bytes;
        if (!element.is_literal || (element.length < wanted && element.advance < stream.bytes - place)) {
            break;
        }
        from[copies] = place + element.header;
        bytes[copies] = element.length;
        place += element.advance;
        made += element.length;
    }
    if (place == stream.bytes && made == length) {
        std::uint32_t out = 0;
        for (std::uint32_t i = 0; i < copies; ++i) {
            if (!list_copy<Lanes>(plan, stream.data + from[i], stream.out + out, bytes[i])) {
                return Problem::room;
            }
            out += bytes[i];
        }
        return Problem::none;
    }
    auto const tiles = stream.bytes / snappy::tile_bytes + (stream.bytes % snappy::tile_bytes != 0 ? 1 : 0);
    auto const parts = length / snappy::fragment_bytes + (length % snappy::fragment_bytes != 0 ? 1 : 0);
    auto const page = Lanes::add(plan.counters->pages, 1);
    auto const first_tile = Lanes::add(plan.counters->tiles, tiles);
    auto const first_part = Lanes::add(plan.counters->fragments, parts);
    if (page >= plan.most_pages || first_tile > plan.most_tiles || tiles > plan.most_tiles - first_tile
        || first_part > plan.most_fragments || parts > plan.most_fragments - first_part) {
        return Problem::room;
    }
    plan.pages[page] =
        Page{.stream = stream, .first_element = first, .first_tile = first_tile, .tiles = tiles};
    for (std::uint32_t i = 0; i < tiles; ++i) {
        plan.tile_pages[first_tile + i] = page;
    }
    for (std::uint32_t i = 0; i < parts; ++i) {
        auto const begin = i * snappy::fragment_bytes;
        auto const end = length - begin < snappy::fragment_bytes ? length : begin + snappy::fragment_bytes;
        plan.fragments[first_part + i] =
            Fragment{.page = page, .begin = begin, .end = end, .data = nullptr, .out = nullptr};
    }
    return Problem::none;
}

template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_pages(Plan const& plan, Chunk& chunk) {
    std::uint64_t place = 0;
    std::uint64_t out = 0;
    std::uint64_t values = 0;
    while (values < chunk.values && place < chunk.bytes) {
        PageHeader header;
        auto const* const data = chunk.data + place;
        if (!read_page_header(data, chunk.bytes - place, header)) {
            return Problem::header;
        }
        place += header.bytes;
        if (header.compressed_bytes > chunk.bytes - place) {
            return Problem::header;
        }
        if (std::uint64_t{header.bytes} + most_header_growth + header.uncompressed_bytes > chunk.room - out) {
            return Problem::room;
        }
        out += write_uncompressed_header(data, header, chunk.out + out);
        auto const* const body = data + header.bytes;
        auto* const to = chunk.out + out;
        auto const levels = header.level_bytes;
        if (!header.is_compressed) {
            if (header.compressed_bytes != header.uncompressed_bytes) {
                return Problem::length;
            }
            if (!list_copy<Lanes>(plan, body, to, header.compressed_bytes)) {
                return Problem::room;
            }
        } else {
            if (!list_copy<Lanes>(plan, body, to, levels)) {
                return Problem::room;
            }
            snappy::Stream const stream{
                .data = body + levels,
                .bytes = header.compressed_bytes - levels,
                .out = to + levels,
                .out_bytes = header.uncompressed_bytes - levels};
            // A page without values may have no stream.
            if (stream.bytes != 0 || stream.out_bytes != 0) {
                if (auto const problem = list_stream<Lanes>(plan, stream); problem != Problem::none) {
                    return problem;
                }
            }
        }
        place += header.compressed_bytes;
        out += header.uncompressed_bytes;
        values += static_cast<std::uint64_t>(header.values);
    }
    chunk.out_bytes = out;
    return values >= chunk.values ? Problem::none : Problem::header;
}

// What the lanes share to find elements.
struct TileScratch {
    snappy::TileInput input;
    snappy::SegmentTable<std::uint32_t> table;
};

template <typename Lanes>
RAPIDSMPF_DEVICE void find_exits(
    Lanes const& lanes, Plan const& plan, std::uint32_t tile, TileScratch& scratch) {
    auto const page = plan.pages[plan.tile_pages[tile]];
    snappy::find_exits(
        lanes, page.stream, tile - page.first_tile, scratch.input, scratch.table,
        plan.exits + std::uint64_t{tile} * snappy::segment_bytes);
}

template <typename Lanes>
RAPIDSMPF_DEVICE void chain_page(
    Lanes const& lanes, Plan const& plan, std::uint32_t number, TileScratch& scratch) {
    auto const page = plan.pages[number];
    auto const joined = snappy::chain_tiles(
        lanes, page.stream, page.first_element, page.tiles,
        plan.exits + std::uint64_t{page.first_tile} * snappy::segment_bytes, scratch.input, scratch.table,
        plan.tiles + page.first_tile);
    if (!joined) {
        fail<Lanes>(plan, Problem::chain);
    }
}

template <typename Lanes>
RAPIDSMPF_DEVICE void decode_fragment(
    Lanes const& lanes, Plan const& plan, std::uint32_t number, snappy::Scratch& scratch) {
    auto const fragment = plan.fragments[number];
    if (fragment.page == Fragment::no_page) {
        copy_bytes(lanes, fragment.data, fragment.out, fragment.end);
        return;
    }
    auto const page = plan.pages[fragment.page];
    auto const decoded = snappy::decode_fragment(
        lanes, page.stream, fragment.begin, fragment.end, page.tiles, plan.tiles + page.first_tile, scratch);
    if (!decoded) {
        fail<Lanes>(plan, Problem::dependency);
    }
}

}  // namespace rapidsmpf::pages

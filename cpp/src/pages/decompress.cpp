#include <rapidsmpf/pages/detail/decompress.hpp>

#include <memory>

#include "pages/block.hpp"
#include "pages/plan.hpp"

namespace rapidsmpf::pages {

std::uint64_t room_for(std::uint64_t uncompressed) {
    // Headers grow by a byte where a size takes one more, which is where the page grows from less than 64 bytes to more, by
    // two at 8 KiB and so on.
    return (uncompressed + uncompressed / 64 + 64 + most_header_growth + 255) / 256 * 256;
}

PlanLayout PlanLayout::of(std::span<Chunk const> chunks) {
    auto const compressed = bytes_of(chunks);
    std::uint64_t room = 0;
    for (auto const& chunk : chunks) {
        room += chunk.room;
    }
    PlanLayout layout;
    layout.chunks = static_cast<std::uint32_t>(chunks.size());
    layout.pages = most_pages(chunks.size(), compressed);
    layout.tiles = limited_count(layout.pages + compressed / snappy::tile_bytes);
    layout.fragments = limited_count(2 * std::uint64_t{layout.pages} + room / snappy::fragment_bytes);
    auto const place = [&layout](std::size_t bytes) { return append_array(layout.bytes, bytes); };
    layout.counters_at = layout.chunks * sizeof(Chunk);
    place(layout.counters_at + sizeof(Counters));
    layout.pages_at = place(layout.pages * sizeof(Page));
    layout.tile_pages_at = place(layout.tiles * sizeof(std::uint32_t));
    layout.tiles_at = place(layout.tiles * sizeof(snappy::Tile));
    layout.exits_at = place(std::size_t{layout.tiles} * snappy::segment_bytes * sizeof(snappy::Exit));
    layout.fragments_at = place(layout.fragments * sizeof(Fragment));
    return layout;
}

Plan PlanLayout::in(std::byte* memory) const {
    return Plan{
        .chunks = reinterpret_cast<Chunk*>(memory),
        .n_chunks = chunks,
        .counters = reinterpret_cast<Counters*>(memory + counters_at),
        .pages = reinterpret_cast<Page*>(memory + pages_at),
        .most_pages = pages,
        .tile_pages = reinterpret_cast<std::uint32_t*>(memory + tile_pages_at),
        .tiles = reinterpret_cast<snappy::Tile*>(memory + tiles_at),
        .exits = reinterpret_cast<snappy::Exit*>(memory + exits_at),
        .most_tiles = tiles,
        .fragments = reinterpret_cast<Fragment*>(memory + fragments_at),
        .most_fragments = fragments};
}

void decompress_on_cpu(Plan const& plan) {
    LanesOnCpu const lanes;
    auto& counters = *plan.counters;
    for (std::uint32_t i = 0; i < plan.n_chunks && counters.error == 0; ++i) {
        if (auto const problem = list_pages<LanesOnCpu>(plan, plan.chunks[i]); problem != Problem::none) {
            fail<LanesOnCpu>(plan, problem);
        }
    }
    auto const tile_scratch = std::make_unique<TileScratch>();
    auto const scratch = std::make_unique<snappy::Scratch>();
    if (counters.error == 0) {
        for (std::uint32_t i = 0; i < counters.tiles; ++i) {
            find_exits(lanes, plan, i, *tile_scratch);
        }
        for (std::uint32_t i = 0; i < counters.pages; ++i) {
            chain_page(lanes, plan, i, *tile_scratch);
        }
    }
    if (counters.error == 0) {
        for (std::uint32_t i = 0; i < counters.fragments; ++i) {
            decode_fragment(lanes, plan, i, *scratch);
        }
    }
}

}  // namespace rapidsmpf::pages

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include <memory>

#include "pages/block.hpp"
#include "pages/strings.hpp"

namespace rapidsmpf::pages {

NumberPlanLayout NumberPlanLayout::of(std::span<StringChunk const> chunks) {
    auto const bytes = bytes_of(chunks);
    NumberPlanLayout layout;
    layout.chunks = static_cast<std::uint32_t>(chunks.size());
    layout.pages = most_pages(chunks.size(), bytes);
    layout.tiles = limited_count(2 * std::uint64_t{layout.pages} + bytes / StringScratch::tile_bytes);
    auto const place = [&layout](std::size_t array_bytes) { return append_array(layout.bytes, array_bytes); };
    layout.counters_at = layout.chunks * sizeof(StringChunk);
    layout.chunk_strings_at = layout.counters_at + sizeof(NumberCounters);
    layout.head_bytes = layout.chunk_strings_at + layout.chunks * sizeof(ChunkStrings);
    place(layout.head_bytes);
    layout.pages_at = place(layout.pages * sizeof(StringPage));
    layout.tile_pages_at = place(layout.tiles * sizeof(std::uint32_t));
    layout.tiles_at = place(layout.tiles * sizeof(StringTile));
    return layout;
}

NumberPlan NumberPlanLayout::in(std::byte* memory) const {
    return NumberPlan{
        .chunks = reinterpret_cast<StringChunk const*>(memory),
        .n_chunks = chunks,
        .counters = reinterpret_cast<NumberCounters*>(memory + counters_at),
        .chunk_strings = reinterpret_cast<ChunkStrings*>(memory + chunk_strings_at),
        .pages = reinterpret_cast<StringPage*>(memory + pages_at),
        .most_pages = pages,
        .tile_pages = reinterpret_cast<std::uint32_t*>(memory + tile_pages_at),
        .tiles = reinterpret_cast<StringTile*>(memory + tiles_at),
        .most_tiles = tiles,
        .exits = nullptr,
        .places = nullptr};
}

std::size_t NumberPlanLayout::exits_bytes(std::uint32_t tiles) {
    return std::size_t{tiles} * StringScratch::entries * sizeof(StringExit);
}

void list_strings_on_cpu(NumberPlan const& plan) {
    for (std::uint32_t i = 0; i < plan.n_chunks; ++i) {
        if (auto const problem = list_strings<LanesOnCpu>(plan, plan.chunks[i]); problem != Problem::none) {
            fail<LanesOnCpu>(plan, problem);
            return;
        }
    }
}

void number_strings_on_cpu(NumberPlan const& plan) {
    LanesOnCpu const lanes;
    auto const scratch = std::make_unique<StringScratch>();
    auto& counters = *plan.counters;
    for (std::uint32_t i = 0; i < counters.tiles; ++i) {
        find_exits(lanes, plan, i, *scratch);
    }
    for (std::uint32_t i = 0; i < counters.pages && counters.error == 0; ++i) {
        chain_page(lanes, plan, i, *scratch);
    }
    for (std::uint32_t i = 0; i < counters.tiles && counters.error == 0; ++i) {
        number_tile(lanes, plan, i, *scratch);
    }
}

void places_of_rows_on_cpu(NumberPlan const& plan, NumberedRows const& rows, StringPlace* places) {
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
        places[row] = place_of_row<LanesOnCpu>(plan, rows, row);
    }
}

}  // namespace rapidsmpf::pages

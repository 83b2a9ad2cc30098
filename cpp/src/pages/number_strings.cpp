#include <rapidsmpf/pages/detail/number_strings.hpp>

#include <algorithm>
#include <memory>

#include "pages/strings.hpp"

namespace rapidsmpf::pages {

NumberPlanLayout NumberPlanLayout::of(std::span<StringChunk const> chunks) {
    std::uint64_t bytes = 0;
    for (auto const& chunk : chunks) {
        bytes += chunk.bytes;
    }
    NumberPlanLayout layout;
    layout.chunks = static_cast<std::uint32_t>(chunks.size());
    // Room for the pages that writers make: 4 KiB on average, or more.
    layout.pages =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(16 * chunks.size() + bytes / 4096, 0x7fffffff));
    auto const whole = [](std::size_t n) { return (n + 255) / 256 * 256; };
    layout.counters_at = layout.chunks * sizeof(StringChunk);
    layout.pages_at = whole(layout.counters_at + sizeof(NumberCounters));
    layout.bytes = whole(layout.pages_at + layout.pages * sizeof(StringPage));
    return layout;
}

NumberPlan NumberPlanLayout::in(std::byte* memory) const {
    return NumberPlan{
        .chunks = reinterpret_cast<StringChunk const*>(memory),
        .n_chunks = chunks,
        .counters = reinterpret_cast<NumberCounters*>(memory + counters_at),
        .pages = reinterpret_cast<StringPage*>(memory + pages_at),
        .most_pages = pages,
        .places = nullptr};
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
    auto const scratch = std::make_unique<StringScratch>();
    for (std::uint32_t i = 0; i < plan.counters->pages; ++i) {
        number_page(LanesOnCpu{}, plan, i, *scratch);
    }
}

void places_of_rows_on_cpu(NumberPlan const& plan, NumberedRows const& rows, StringPlace* places) {
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
        places[row] = place_of_row<LanesOnCpu>(plan, rows, row);
    }
}

}  // namespace rapidsmpf::pages

#include <rapidsmpf/pages/detail/decode_values.hpp>

#include <memory>

#include "pages/block.hpp"
#include "pages/values.hpp"

namespace rapidsmpf::pages {

ValuePlanLayout ValuePlanLayout::of(std::span<ValueChunk const> chunks, std::size_t columns) {
    std::uint64_t values = 0;
    for (auto const& chunk : chunks) {
        values += chunk.values;
    }
    ValuePlanLayout layout;
    layout.chunks = static_cast<std::uint32_t>(chunks.size());
    layout.pages =
        limited_count(std::uint64_t{most_pages(chunks.size(), bytes_of(chunks))} + values / least_part);
    auto const place = [&layout](std::size_t array_bytes) { return append_array(layout.bytes, array_bytes); };
    layout.columns_at = layout.chunks * sizeof(ValueChunk);
    layout.counters_at = layout.columns_at + columns * sizeof(ValueColumn);
    place(layout.counters_at + sizeof(ValueCounters));
    layout.pages_at = place(layout.pages * sizeof(ValuePage));
    return layout;
}

ValuePlan ValuePlanLayout::in(std::byte* memory) const {
    return ValuePlan{
        .chunks = reinterpret_cast<ValueChunk const*>(memory),
        .n_chunks = chunks,
        .columns = reinterpret_cast<ValueColumn*>(memory + columns_at),
        .counters = reinterpret_cast<ValueCounters*>(memory + counters_at),
        .pages = reinterpret_cast<ValuePage*>(memory + pages_at),
        .most_pages = pages};
}

void decode_values_on_cpu(ValuePlan const& plan) {
    LanesOnCpu const lanes;
    auto const scratch = std::make_unique<ValueScratch>();
    auto& counters = *plan.counters;
    for (std::uint32_t i = 0; i < plan.n_chunks && counters.error == 0; ++i) {
        if (auto const problem = list_values<LanesOnCpu>(plan, plan.chunks[i]); problem != Problem::none) {
            fail<LanesOnCpu>(plan, problem);
        }
    }
    for (std::uint32_t i = 0; i < counters.pages && counters.error == 0; ++i) {
        decode_page(lanes, plan, i, *scratch);
    }
}

}  // namespace rapidsmpf::pages

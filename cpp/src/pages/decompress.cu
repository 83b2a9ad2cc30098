// The steps of a plan as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/items.cuh"
#include "pages/plan.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_all(Plan const plan) {
    list_chunk(plan, [&](Chunk& chunk) { return list_pages<LanesOfWarp>(plan, chunk); });
}

__global__ void __launch_bounds__(threads_per_block) find_all(Plan const plan) {
    auto& counters = *plan.counters;
    take_items_with<TileScratch>(
        counters, counters.next_tile, counters.tiles,
        [&](LanesOfWarp const& lanes, std::uint32_t tile, TileScratch& scratch) {
            find_exits(lanes, plan, tile, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) chain_all(Plan const plan) {
    auto& counters = *plan.counters;
    take_items_with<TileScratch>(
        counters, counters.next_page, counters.pages,
        [&](LanesOfWarp const& lanes, std::uint32_t page, TileScratch& scratch) {
            chain_page(lanes, plan, page, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) decode_all(Plan const plan) {
    auto& counters = *plan.counters;
    take_items_with<snappy::Scratch>(
        counters, counters.next_fragment, counters.fragments,
        [&](LanesOfWarp const& lanes, std::uint32_t fragment, snappy::Scratch& scratch) {
            decode_fragment(lanes, plan, fragment, scratch);
        });
}

}  // namespace

void decompress_on_gpu(Plan const& plan, cudaStream_t stream) {
    if (plan.n_chunks == 0) {
        return;
    }
    auto const blocks = blocks_for_items();
    list_all<<<plan.n_chunks, lane_count, 0, stream>>>(plan);
    find_all<<<blocks, threads_per_block, 0, stream>>>(plan);
    chain_all<<<blocks / 4, threads_per_block, 0, stream>>>(plan);
    decode_all<<<blocks, threads_per_block, 0, stream>>>(plan);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace rapidsmpf::pages

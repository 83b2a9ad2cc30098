// The steps of a plan as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/items.cuh"
#include "pages/plan.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_all(Plan const plan) {
    // A chain of dependent reads: one lane of a warp does it, and others would wait for each other.
    auto const chunk = blockIdx.x;
    if (threadIdx.x != 0 || chunk >= plan.n_chunks) {
        return;
    }
    if (auto const problem = list_pages<LanesOfWarp>(plan, plan.chunks[chunk]); problem != Problem::none) {
        fail<LanesOfWarp>(plan, problem);
    }
}

__global__ void __launch_bounds__(threads_per_block) find_all(Plan const plan) {
    __shared__ TileScratch scratches[warps_per_block];
    auto& counters = *plan.counters;
    auto const lane = threadIdx.x % lane_count;
    auto& scratch = scratches[threadIdx.x / lane_count];
    LanesOfWarp const lanes{lane};
    take_items(counters, counters.next_tile, counters.tiles, lane, [&](std::uint32_t tile) {
        find_exits(lanes, plan, tile, scratch);
    });
}

__global__ void __launch_bounds__(threads_per_block) chain_all(Plan const plan) {
    __shared__ TileScratch scratches[warps_per_block];
    auto& counters = *plan.counters;
    auto const lane = threadIdx.x % lane_count;
    LanesOfWarp const lanes{lane};
    take_items(counters, counters.next_page, counters.pages, lane, [&](std::uint32_t page) {
        chain_page(lanes, plan, page, scratches[threadIdx.x / lane_count]);
    });
}

__global__ void __launch_bounds__(threads_per_block) decode_all(Plan const plan) {
    __shared__ snappy::Scratch scratches[warps_per_block];
    auto& counters = *plan.counters;
    auto const lane = threadIdx.x % lane_count;
    auto& scratch = scratches[threadIdx.x / lane_count];
    LanesOfWarp const lanes{lane};
    take_items(counters, counters.next_fragment, counters.fragments, lane, [&](std::uint32_t fragment) {
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

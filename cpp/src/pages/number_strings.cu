// The steps of number_strings.hpp as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "pages/items.cuh"
#include "pages/strings.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_strings_of_all(NumberPlan const plan) {
    // A chain of dependent reads: one lane of a warp does it, and others would wait for each other.
    auto const chunk = blockIdx.x;
    if (threadIdx.x != 0 || chunk >= plan.n_chunks) {
        return;
    }
    if (auto const problem = list_strings<LanesOfWarp>(plan, plan.chunks[chunk]); problem != Problem::none) {
        fail<LanesOfWarp>(plan, problem);
    }
}

// Calls step(lanes, number, scratch) for items that no other warp has.
template <typename Step>
__device__ void take_strings(NumberPlan const& plan, std::uint32_t& next, std::uint32_t n, Step&& step) {
    __shared__ StringScratch scratches[warps_per_block];
    auto const lane = threadIdx.x % lane_count;
    auto& scratch = scratches[threadIdx.x / lane_count];
    LanesOfWarp const lanes{lane};
    take_items(*plan.counters, next, n, lane, [&](std::uint32_t number) { step(lanes, number, scratch); });
}

__global__ void __launch_bounds__(threads_per_block) find_all_strings(NumberPlan const plan) {
    take_strings(
        plan, plan.counters->next_to_find, plan.counters->tiles,
        [&](LanesOfWarp const& lanes, std::uint32_t tile, StringScratch& scratch) {
            find_exits(lanes, plan, tile, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) chain_all_strings(NumberPlan const plan) {
    take_strings(
        plan, plan.counters->next_page, plan.counters->pages,
        [&](LanesOfWarp const& lanes, std::uint32_t page, StringScratch& scratch) {
            chain_page(lanes, plan, page, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) number_all_strings(NumberPlan const plan) {
    take_strings(
        plan, plan.counters->next_to_number, plan.counters->tiles,
        [&](LanesOfWarp const& lanes, std::uint32_t tile, StringScratch& scratch) {
            number_tile(lanes, plan, tile, scratch);
        });
}

__global__ void places_of_all(NumberPlan const plan, NumberedRows const rows, StringPlace* places) {
    auto const row = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (row < rows.rows) {
        places[row] = place_of_row<LanesOfWarp>(plan, rows, row);
    }
}

}  // namespace

void list_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream) {
    if (plan.n_chunks == 0) {
        return;
    }
    list_strings_of_all<<<plan.n_chunks, lane_count, 0, stream>>>(plan);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

void number_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream) {
    auto const blocks = blocks_for_items();
    find_all_strings<<<blocks, threads_per_block, 0, stream>>>(plan);
    chain_all_strings<<<blocks / 4, threads_per_block, 0, stream>>>(plan);
    number_all_strings<<<blocks, threads_per_block, 0, stream>>>(plan);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

void places_of_rows_on_gpu(
    NumberPlan const& plan, NumberedRows const& rows, StringPlace* places, cudaStream_t stream) {
    if (rows.rows == 0) {
        return;
    }
    constexpr unsigned threads = 256;
    auto const blocks = static_cast<unsigned>((rows.rows + threads - 1) / threads);
    places_of_all<<<blocks, threads, 0, stream>>>(plan, rows, places);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace rapidsmpf::pages

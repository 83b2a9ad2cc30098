// The steps of number_strings.hpp as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "pages/items.cuh"
#include "pages/strings.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_strings_of_all(NumberPlan const plan) {
    list_chunk(plan, [&](StringChunk const& chunk) { return list_strings<LanesOfWarp>(plan, chunk); });
}

__global__ void __launch_bounds__(threads_per_block) find_all_strings(NumberPlan const plan) {
    auto& counters = *plan.counters;
    take_items_with<StringScratch>(
        counters, counters.next_to_find, counters.tiles,
        [&](LanesOfWarp const& lanes, std::uint32_t tile, StringScratch& scratch) {
            find_exits(lanes, plan, tile, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) chain_all_strings(NumberPlan const plan) {
    auto& counters = *plan.counters;
    take_items_with<StringScratch>(
        counters, counters.next_page, counters.pages,
        [&](LanesOfWarp const& lanes, std::uint32_t page, StringScratch& scratch) {
            chain_page(lanes, plan, page, scratch);
        });
}

__global__ void __launch_bounds__(threads_per_block) number_all_strings(NumberPlan const plan) {
    auto& counters = *plan.counters;
    take_items_with<StringScratch>(
        counters, counters.next_to_number, counters.tiles,
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

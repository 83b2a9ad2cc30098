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

__global__ void __launch_bounds__(threads_per_block) number_all(NumberPlan const plan) {
    __shared__ StringScratch scratches[warps_per_block];
    auto& counters = *plan.counters;
    auto const lane = threadIdx.x % lane_count;
    LanesOfWarp const lanes{lane};
    take_items(counters, counters.next_page, counters.pages, lane, [&](std::uint32_t page) {
        number_page(lanes, plan, page, scratches[threadIdx.x / lane_count]);
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
    number_all<<<blocks_for_items(), threads_per_block, 0, stream>>>(plan);
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

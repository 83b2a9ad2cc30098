// The steps of decode_values.hpp as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decode_values.hpp>

#include "pages/items.cuh"
#include "pages/values.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_all_values(ValuePlan const plan) {
    // A chain of dependent reads: one lane of a warp does it, and others would wait for each other.
    auto const chunk = blockIdx.x;
    if (threadIdx.x != 0 || chunk >= plan.n_chunks) {
        return;
    }
    if (auto const problem = list_values<LanesOfWarp>(plan, plan.chunks[chunk]); problem != Problem::none) {
        fail<LanesOfWarp>(plan, problem);
    }
}

__global__ void __launch_bounds__(threads_per_block) decode_all_pages(ValuePlan const plan) {
    __shared__ ValueScratch scratches[warps_per_block];
    auto& counters = *plan.counters;
    auto const lane = threadIdx.x % lane_count;
    auto& scratch = scratches[threadIdx.x / lane_count];
    LanesOfWarp const lanes{lane};
    take_items(counters, counters.next_page, counters.pages, lane, [&](std::uint32_t page) {
        decode_page(lanes, plan, page, scratch);
    });
}

}  // namespace

void decode_values_on_gpu(ValuePlan const& plan, cudaStream_t stream) {
    if (plan.n_chunks == 0) {
        return;
    }
    list_all_values<<<plan.n_chunks, lane_count, 0, stream>>>(plan);
    decode_all_pages<<<blocks_for_items(), threads_per_block, 0, stream>>>(plan);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace rapidsmpf::pages

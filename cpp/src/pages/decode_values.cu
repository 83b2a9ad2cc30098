// The steps of decode_values.hpp as kernels.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decode_values.hpp>

#include "pages/items.cuh"
#include "pages/values.hpp"

namespace rapidsmpf::pages {

namespace {

__global__ void list_all_values(ValuePlan const plan) {
    list_chunk(plan, [&](ValueChunk const& chunk) { return list_values<LanesOfWarp>(plan, chunk); });
}

__global__ void __launch_bounds__(threads_per_block) decode_all_pages(ValuePlan const plan) {
    auto& counters = *plan.counters;
    take_items_with<ValueScratch>(
        counters, counters.next_page, counters.pages,
        [&](LanesOfWarp const& lanes, std::uint32_t page, ValueScratch& scratch) {
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

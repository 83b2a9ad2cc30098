// The steps of a plan as kernels. A warp takes one item after the other from a counter, because items differ much in how long
// they take.
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/plan.hpp"

namespace rapidsmpf::pages {

namespace {

constexpr unsigned warps_per_block = 4;
constexpr unsigned threads_per_block = warps_per_block * lane_count;

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

// Calls work(number) for items that no other warp has; for none if an earlier kernel has found an error.
template <typename Work>
__device__ void take_items(
    Counters& counters, std::uint32_t& next, std::uint32_t n, std::uint32_t lane, Work&& work) {
    // One lane reads: others may be at work and raise errors.
    auto const failed = lane == 0 && *static_cast<std::uint32_t volatile*>(&counters.error) != 0;
    if (__any_sync(0xffffffffU, failed)) {
        return;
    }
    for (;;) {
        std::uint32_t number = 0;
        if (lane == 0) {
            number = atomicAdd(&next, 1U);
        }
        number = __shfl_sync(0xffffffffU, number, 0);
        if (number >= n) {
            return;
        }
        work(number);
        __syncwarp();
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
    int device = 0;
    int multiprocessors = 0;
    device::detail::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    device::detail::check_cuda(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
    auto const blocks = static_cast<unsigned>(multiprocessors) * 8;
    list_all<<<plan.n_chunks, lane_count, 0, stream>>>(plan);
    find_all<<<blocks, threads_per_block, 0, stream>>>(plan);
    chain_all<<<blocks / 4, threads_per_block, 0, stream>>>(plan);
    decode_all<<<blocks, threads_per_block, 0, stream>>>(plan);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace rapidsmpf::pages

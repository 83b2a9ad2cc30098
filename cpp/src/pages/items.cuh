// A queue of work items, such as pages, whose durations differ: each warp takes the next item from an atomic counter.
#pragma once

#include <cstdint>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/lanes.hpp"

namespace rapidsmpf::pages {

inline constexpr unsigned warps_per_block = 4;
inline constexpr unsigned threads_per_block = warps_per_block * lane_count;

// Calls work(number) for items that no other warp has; for none if an earlier kernel has found an error.
template <typename Counters, typename Work>
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

// The same with memory that the lanes of the warp share: calls work(lanes, number, scratch).
template <typename Scratch, typename Counters, typename Work>
__device__ void take_items_with(Counters& counters, std::uint32_t& next, std::uint32_t n, Work&& work) {
    __shared__ Scratch scratches[warps_per_block];
    auto const lane = threadIdx.x % lane_count;
    auto& scratch = scratches[threadIdx.x / lane_count];
    LanesOfWarp const lanes{lane};
    take_items(counters, next, n, lane, [&](std::uint32_t number) { work(lanes, number, scratch); });
}

// Calls list(chunk) for the chunk of this block. What it does is a chain of dependent reads: one lane of a warp does it, and others
// would wait for each other.
template <typename Plan, typename List>
__device__ void list_chunk(Plan const& plan, List&& list) {
    auto const chunk = blockIdx.x;
    if (threadIdx.x != 0 || chunk >= plan.n_chunks) {
        return;
    }
    if (auto const problem = list(plan.chunks[chunk]); problem != Problem::none) {
        fail<LanesOfWarp>(plan, problem);
    }
}

// Blocks that fill the current device with warps.
inline unsigned blocks_for_items() {
    int device = 0;
    int multiprocessors = 0;
    device::detail::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    device::detail::check_cuda(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
    return static_cast<unsigned>(multiprocessors) * 8;
}

}  // namespace rapidsmpf::pages

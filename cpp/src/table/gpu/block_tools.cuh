// What the threads of a block do together.
#pragma once

#include <cstdint>

#include "table/gpu/device_bytes.hpp"
#include "table/gpu/device_node.hpp"
#include "table/gpu/row_space.hpp"

namespace rapidsmpf::detail {

inline constexpr std::uint32_t warp_size = 32;

// The sum of the values of the threads before this one; `total`: of all. `scratch`: one entry for each warp and one
// more. To be called by all threads of the block.
template <typename T>
__device__ T sum_before(T value, T* scratch, T& total) {
    auto const lane = threadIdx.x % warp_size;
    auto const warp = threadIdx.x / warp_size;
    auto const warps = blockDim.x / warp_size;
    T sum = value;
    for (std::uint32_t distance = 1; distance < warp_size; distance *= 2) {
        auto const other = __shfl_up_sync(0xffffffffU, sum, distance);
        if (lane >= distance) {
            sum += other;
        }
    }
    if (lane == warp_size - 1) {
        scratch[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        T own = lane < warps ? scratch[lane] : T{0};
        T running = own;
        for (std::uint32_t distance = 1; distance < warp_size; distance *= 2) {
            auto const other = __shfl_up_sync(0xffffffffU, running, distance);
            if (lane >= distance) {
                running += other;
            }
        }
        if (lane < warps) {
            scratch[lane] = running - own;
        }
        if (lane == warp_size - 1) {
            scratch[warp_size] = running;
        }
    }
    __syncthreads();
    total = scratch[warp_size];
    auto const before = scratch[warp] + sum - value;
    __syncthreads();  // so that the scratch memory can be used again
    return before;
}

inline constexpr std::uint32_t sum_scratch = warp_size + 1;

// One tile of a space, as a block sees it.
struct Tile {
    std::int64_t first;  // its first row
    std::uint32_t rows;  // how many it has
    std::uint32_t index;
};

__device__ inline Tile tile_at(RowSpace const& space, std::uint32_t index) {
    auto const first = static_cast<std::int64_t>(index) * space.tile_rows;
    auto const left = space.rows - first;
    return {first, left < space.tile_rows ? static_cast<std::uint32_t>(left) : space.tile_rows, index};
}

__device__ inline std::uint16_t const* starts_of(RowSpace const& space, std::uint32_t tile) {
    return space.starts + static_cast<std::uint64_t>(tile) * (space.buckets() + 1);
}

// Copies the starts of a tile's runs; all threads, which have to synchronize before they read.
__device__ inline void load_starts(RowSpace const& space, std::uint32_t tile, std::uint16_t* starts) {
    auto const* const from = starts_of(space, tile);
    for (auto p = threadIdx.x; p <= space.buckets(); p += blockDim.x) {
        starts[p] = from[p];
    }
}

// Row 0 of the sorted tile would go to this row of partition p (modulo 2^32).
__device__ inline std::uint32_t row_base(
    RowSpace const& space, std::uint32_t tile, std::uint32_t p, std::uint32_t start) {
    auto const* const of_partition = space.before + static_cast<std::uint64_t>(p) * space.tiles;
    return of_partition[tile] - of_partition[0] - start;
}

// Fills prefix[0 .. rows] with the sums of the lengths of the sorted tile's texts or lists. All threads; synchronizes.
__device__ inline void sum_lengths(
    RowSpace const& space, DeviceNode const& node, Tile const& tile, std::uint64_t* prefix,
    std::uint64_t* scratch) {
    auto const* const order = space.order + tile.first;
    std::uint64_t carry{0};
    for (std::uint32_t base = 0; base < tile.rows; base += blockDim.x) {
        auto const k = base + threadIdx.x;
        std::uint64_t length{0};
        if (k < tile.rows) {
            auto const row = tile.first + order[k];
            length = static_cast<std::uint64_t>(offset_at(node, row + 1) - offset_at(node, row));
        }
        std::uint64_t total;
        auto const before = sum_before(length, scratch, total);
        if (k < tile.rows) {
            prefix[k] = carry + before;
        }
        carry += total;
    }
    if (threadIdx.x == 0) {
        prefix[tile.rows] = carry;
    }
    __syncthreads();
}

}  // namespace rapidsmpf::detail

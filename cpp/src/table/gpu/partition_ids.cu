// To which partition rows go.
#include "table/gpu/launch.cuh"
#include "table/gpu/partition_kernels.hpp"

namespace rapidsmpf::detail {

namespace {

constexpr int threads = 256;

template <typename Use>
__device__ void for_each_row(std::int64_t rows, Use const& use) {
    auto const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (auto row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows;
         row += stride) {
        use(row);
    }
}

__global__ void hash_kernel(
    DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys, std::int64_t rows,
    std::uint64_t seed, std::uint64_t* hashes) {
    for_each_row(
        rows, [&](std::int64_t row) { hashes[row] = hash_of_row(nodes, keys, num_keys, row, seed); });
}

__global__ void by_splits_kernel(RowSpace space, std::int64_t const* splits) {
    for_each_row(space.rows, [&](std::int64_t row) {
        // How many splits are not above the row.
        std::uint32_t low = 0;
        auto high = space.num_partitions - 1;
        while (low < high) {
            auto const middle = low + (high - low) / 2;
            if (splits[middle] <= row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        space.partitions[row] = static_cast<std::uint16_t>(low);
    });
}

__global__ void by_column_kernel(RowSpace space, std::uint32_t const* column, std::uint32_t* highest) {
    std::uint32_t found{0};
    for_each_row(space.rows, [&](std::int64_t row) {
        auto const p = column[row];
        found = p > found ? p : found;
        space.partitions[row] =
            static_cast<std::uint16_t>(p < space.num_partitions ? p : space.num_partitions);
    });
    found = __reduce_max_sync(0xffffffffU, found);
    if (threadIdx.x % 32 == 0) {
        atomicMax(highest, found);
    }
}

__global__ void fill_kernel(RowSpace space, std::uint16_t partition) {
    for_each_row(space.rows, [&](std::int64_t row) { space.partitions[row] = partition; });
}

// A warp takes 32 lists, and all its threads write the items of one after the other.
__global__ void items_kernel(RowSpace space, RowSpace parent, DeviceNode list) {
    auto const lane = threadIdx.x % 32;
    auto const warps = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / 32);
    auto const warp = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    for (auto first = warp * 32; first < parent.rows; first += warps * 32) {
        auto const row = first + lane;
        std::int64_t begin{0};
        std::int64_t end{0};
        int partition{0};
        if (row < parent.rows) {
            begin = offset_at(list, row);
            end = offset_at(list, row + 1);
            partition = parent.partitions[row];
        }
        for (int source = 0; source < 32; ++source) {
            auto const from = __shfl_sync(0xffffffffU, begin, source);
            auto const to = __shfl_sync(0xffffffffU, end, source);
            auto const p = static_cast<std::uint16_t>(__shfl_sync(0xffffffffU, partition, source));
            for (auto item = from + lane; item < to; item += 32) {
                space.partitions[item] = p;
            }
        }
    }
}

__global__ void fixed_items_kernel(RowSpace space, RowSpace parent, std::int32_t width) {
    for_each_row(
        space.rows, [&](std::int64_t row) { space.partitions[row] = parent.partitions[row / width]; });
}

}  // namespace

void hash_nodes(
    DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys, std::int64_t rows,
    std::uint64_t seed, std::uint64_t* hashes, Stream stream) {
    hash_kernel<<<blocks_for(static_cast<std::uint64_t>(rows), threads), threads, 0, native(stream)>>>(
        nodes, keys, num_keys, rows, seed, hashes);
    check_cuda(cudaGetLastError(), "hashing rows");
}

void assign_by_splits(RowSpace const& space, std::int64_t const* splits, Stream stream) {
    by_splits_kernel<<<
        blocks_for(static_cast<std::uint64_t>(space.rows), threads), threads, 0, native(stream)>>>(
        space, splits);
    check_cuda(cudaGetLastError(), "cutting rows");
}

void assign_by_column(
    RowSpace const& space, std::uint32_t const* column, std::uint32_t* highest, Stream stream) {
    by_column_kernel<<<
        blocks_for(static_cast<std::uint64_t>(space.rows), threads), threads, 0, native(stream)>>>(
        space, column, highest);
    check_cuda(cudaGetLastError(), "reading partition numbers");
}

void assign_to_first(RowSpace const& space, Stream stream) {
    check_cuda(
        cudaMemsetAsync(
            space.partitions, 0, static_cast<std::size_t>(space.rows) * sizeof(std::uint16_t),
            native(stream)),
        "clearing partition numbers");
}

void assign_items(RowSpace const& space, RowSpace const& parent, DeviceNode const& list, Stream stream) {
    auto const blocks = blocks_for(static_cast<std::uint64_t>(space.rows), threads);
    if (list.layout == Layout::fixed_list) {
        fixed_items_kernel<<<blocks, threads, 0, native(stream)>>>(space, parent, list.width);
    } else {
        // Items that no list has are dropped.
        fill_kernel<<<blocks, threads, 0, native(stream)>>>(
            space, static_cast<std::uint16_t>(space.num_partitions));
        if (parent.rows > 0) {
            items_kernel<<<
                blocks_for(static_cast<std::uint64_t>(parent.rows), threads), threads, 0, native(stream)>>>(
                space, parent, list);
        }
    }
    check_cuda(cudaGetLastError(), "finding the items of lists");
}

}  // namespace rapidsmpf::detail

// Sorting rows by partition within tiles, which hashes them if the caller gives no partitions, and counting what is in each.
#include <algorithm>

#include <cub/device/device_scan.cuh>

#include "table/gpu/block_tools.cuh"
#include "table/gpu/launch.cuh"
#include "table/gpu/partition_kernels.hpp"

namespace rapidsmpf::detail {

namespace {

// Blocks of the kernels that go through tiles with the lengths of texts.
constexpr std::uint32_t measure_threads = 512;

// Shared memory: partitions, ranks and sorted rows of the tile; counts of each warp; totals.
struct SortShared {
    std::uint16_t* partitions;
    std::uint16_t* ranks;
    std::uint16_t* sorted;
    std::uint16_t* counts;
    std::uint32_t* totals;
};

__host__ __device__ std::size_t sort_shared_bytes(
    std::uint32_t tile_rows, std::uint32_t warps, std::uint32_t buckets) {
    auto const counts = (static_cast<std::size_t>(warps) * buckets + 1) / 2 * 2;
    return 3 * sizeof(std::uint16_t) * tile_rows + sizeof(std::uint16_t) * counts
           + sizeof(std::uint32_t) * buckets;
}

__device__ SortShared
sort_shared(std::uint8_t* memory, std::uint32_t tile_rows, std::uint32_t warps, std::uint32_t buckets) {
    SortShared shared{};
    shared.partitions = reinterpret_cast<std::uint16_t*>(memory);
    shared.ranks = shared.partitions + tile_rows;
    shared.sorted = shared.ranks + tile_rows;
    shared.counts = shared.sorted + tile_rows;
    shared.totals = reinterpret_cast<std::uint32_t*>(shared.counts + (warps * buckets + 1) / 2 * 2);
    return shared;
}

// Counts each warp's rows by partition, and numbers them, in stable order.
__device__ void rank_rows(
    SortShared const& shared, Tile const& tile, std::uint32_t buckets, std::uint32_t share) {
    auto const lane = threadIdx.x % warp_size;
    auto const warp = threadIdx.x / warp_size;
    auto* const counts = shared.counts + warp * buckets;
    for (auto base = warp * share; base < (warp + 1) * share; base += warp_size) {
        auto const i = base + lane;
        auto const active = __ballot_sync(0xffffffffU, i < tile.rows);
        if (i < tile.rows) {
            auto const p = static_cast<std::uint32_t>(shared.partitions[i]);
            auto const peers = __match_any_sync(active, p);
            auto const earlier = static_cast<std::uint32_t>(__popc(peers & ((1U << lane) - 1U)));
            auto const known = static_cast<std::uint32_t>(counts[p]);
            __syncwarp(active);
            if (earlier == 0) {
                counts[p] = static_cast<std::uint16_t>(known + __popc(peers));
            }
            __syncwarp(active);
            shared.ranks[i] = static_cast<std::uint16_t>(known + earlier);
        }
    }
}

// The partitions of a tile's rows have been stored.
struct StoredPartitions {
    __device__ void load(RowSpace const& space, Tile const& tile, std::uint16_t* partitions) const {
        for (auto i = threadIdx.x; i < tile.rows; i += blockDim.x) {
            partitions[i] = space.partitions[tile.first + i];
        }
    }
};

// They are those of the rows' hashes, and are stored if items of lists will ask for them.
__device__ void assign(
    RowSpace const& space, Tile const& tile, std::uint16_t* partitions, std::uint32_t i, std::uint64_t hash) {
    auto const p = static_cast<std::uint16_t>(hash::partition_of(hash, space.num_partitions));
    partitions[i] = p;
    if (space.order != space.partitions) {
        space.partitions[tile.first + i] = p;
    }
}

struct HashedKeys {
    DeviceNode const* nodes;
    std::int32_t const* keys;
    std::int32_t num_keys;
    std::uint64_t seed;

    __device__ void load(RowSpace const& space, Tile const& tile, std::uint16_t* partitions) const {
        for (auto i = threadIdx.x; i < tile.rows; i += blockDim.x) {
            assign(space, tile, partitions, i, hash_of_row(nodes, keys, num_keys, tile.first + i, seed));
        }
    }
};

// A single key of numbers without nulls: several are read before the first is needed.
template <typename Word>
struct HashedWords {
    DeviceNode key;
    std::uint64_t seed;

    __device__ void load(RowSpace const& space, Tile const& tile, std::uint16_t* partitions) const {
        constexpr std::uint32_t batch = 4;
        auto const* const values = static_cast<Word const*>(key.values) + tile.first;
        auto const state = hash::start(seed);
        for (auto first = threadIdx.x; first < tile.rows; first += batch * blockDim.x) {
            Word words[batch];
#pragma unroll
            for (std::uint32_t j = 0; j < batch; ++j) {
                auto const i = first + j * blockDim.x;
                words[j] = i < tile.rows ? values[i] : Word{0};
            }
#pragma unroll
            for (std::uint32_t j = 0; j < batch; ++j) {
                auto const i = first + j * blockDim.x;
                if (i < tile.rows) {
                    assign(space, tile, partitions, i, hash::finish(hash::combine(state, word_of(words[j]))));
                }
            }
        }
    }

  private:
    __device__ std::uint64_t word_of(std::uint64_t bits) const {
        return key.kind == ValueKind::float64 ? hash::float64_word(bits) : bits;
    }
    __device__ std::uint64_t word_of(std::uint32_t bits) const {
        return key.kind == ValueKind::float32 ? hash::float32_word(bits) : bits;
    }
};

template <typename PartitionsOf>
__global__ void sort_tiles_kernel(RowSpace space, __grid_constant__ PartitionsOf const partitions_of) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    __shared__ std::uint32_t scratch[sum_scratch];
    auto const warps = blockDim.x / warp_size;
    auto const buckets = space.buckets();
    auto const shared = sort_shared(memory, space.tile_rows, warps, buckets);
    auto const tile = tile_at(space, blockIdx.x);
    auto const share = space.tile_rows / warps;
    for (auto i = threadIdx.x; i < warps * buckets; i += blockDim.x) {
        shared.counts[i] = 0;
    }
    partitions_of.load(space, tile, shared.partitions);
    __syncthreads();
    rank_rows(shared, tile, buckets, share);
    __syncthreads();
    for (auto p = threadIdx.x; p < buckets; p += blockDim.x) {
        std::uint32_t running{0};
        for (std::uint32_t w = 0; w < warps; ++w) {
            auto const count = static_cast<std::uint32_t>(shared.counts[w * buckets + p]);
            shared.counts[w * buckets + p] = static_cast<std::uint16_t>(running);
            running += count;
        }
        shared.totals[p] = running;
        space.before[static_cast<std::uint64_t>(p) * space.tiles + tile.index] = running;
        if (p < space.num_partitions && running > 0) {
            atomicAdd(
                reinterpret_cast<unsigned long long*>(space.totals + p),
                static_cast<unsigned long long>(running));
        }
    }
    __syncthreads();
    auto* const starts = space.starts + static_cast<std::uint64_t>(tile.index) * (buckets + 1);
    std::uint32_t carry{0};
    for (std::uint32_t base = 0; base < buckets; base += blockDim.x) {
        auto const p = base + threadIdx.x;
        auto const count = p < buckets ? shared.totals[p] : 0U;
        std::uint32_t total;
        auto const start = carry + sum_before(count, scratch, total);
        if (p < buckets) {
            shared.totals[p] = start;
            starts[p] = static_cast<std::uint16_t>(start);
        }
        carry += total;
    }
    if (threadIdx.x == 0) {
        starts[buckets] = static_cast<std::uint16_t>(tile.rows);
    }
    __syncthreads();
    for (auto i = threadIdx.x; i < tile.rows; i += blockDim.x) {
        auto const p = static_cast<std::uint32_t>(shared.partitions[i]);
        auto const place = shared.totals[p] + shared.counts[i / share * buckets + p] + shared.ranks[i];
        shared.sorted[place] = static_cast<std::uint16_t>(i);
    }
    __syncthreads();
    for (auto i = threadIdx.x; i < tile.rows; i += blockDim.x) {
        space.order[tile.first + i] = shared.sorted[i];
    }
}

__global__ __launch_bounds__(measure_threads) void measure_kernel(
    RowSpace space, DeviceNode node, RunningSums sums) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    __shared__ std::uint64_t scratch[sum_scratch];
    auto* const prefix = reinterpret_cast<std::uint64_t*>(memory);
    auto const tile = tile_at(space, blockIdx.x);
    sum_lengths(space, node, tile, prefix, scratch);
    auto const* const starts = starts_of(space, tile.index);
    for (auto p = threadIdx.x; p < space.num_partitions; p += blockDim.x) {
        sums[static_cast<std::uint64_t>(p) * space.tiles + tile.index] =
            prefix[starts[p + 1]] - prefix[starts[p]];
    }
}

struct NullCounts {
    NullCount entries[max_null_counts];
    int count;
};

// Blocks go through many tiles, and add to the sums in global memory once.
__global__ void count_nulls_kernel(RowSpace space, __grid_constant__ NullCounts const counts) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    auto* const nulls = reinterpret_cast<std::uint32_t*>(memory);
    auto* const starts = reinterpret_cast<std::uint16_t*>(nulls + space.num_partitions);
    for (int c = 0; c < counts.count; ++c) {
        auto const& column = counts.entries[c];
        for (auto p = threadIdx.x; p < space.num_partitions; p += blockDim.x) {
            nulls[p] = 0;
        }
        for (auto index = blockIdx.x; index < space.tiles; index += gridDim.x) {
            auto const tile = tile_at(space, index);
            __syncthreads();
            load_starts(space, index, starts);
            __syncthreads();
            auto const kept = static_cast<std::uint32_t>(starts[space.num_partitions]);
            for (auto k = threadIdx.x; k < kept; k += blockDim.x) {
                auto const row = tile.first + space.order[tile.first + k];
                if (!bit_at(column.bits, column.bit_offset + row)) {
                    atomicAdd(nulls + last_not_above(starts, 0, space.num_partitions, k), 1U);
                }
            }
        }
        __syncthreads();
        for (auto p = threadIdx.x; p < space.num_partitions; p += blockDim.x) {
            if (nulls[p] != 0) {
                atomicAdd(
                    reinterpret_cast<unsigned long long*>(column.nulls + p),
                    static_cast<unsigned long long>(nulls[p]));
            }
        }
        __syncthreads();
    }
}

__global__ void collect_kernel(
    std::uint64_t const* sums, std::uint32_t tiles, std::uint32_t num_partitions, std::uint64_t* totals) {
    auto const p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < num_partitions) {
        auto const at = static_cast<std::uint64_t>(p) * tiles;
        totals[p] = sums[at + tiles] - sums[at];
    }
}

template <typename Sum>
void exclusive_sum(
    Sum* values, std::uint64_t count, void* scratch, std::size_t scratch_bytes, Stream stream) {
    check_cuda(
        cub::DeviceScan::ExclusiveSum(
            scratch, scratch_bytes, values, values, static_cast<std::int64_t>(count), native(stream)),
        "summing up");
}

template <typename PartitionsOf>
void sort(RowSpace const& space, PartitionsOf const& partitions_of, Stream stream) {
    constexpr std::size_t most = 200U * 1024U;
    std::uint32_t warps = 16;
    while (warps > 1
           && sort_shared_bytes(space.tile_rows, warps, space.buckets()) > most / (warps > 8 ? 2 : 1)) {
        warps /= 2;
    }
    auto const bytes = sort_shared_bytes(space.tile_rows, warps, space.buckets());
    allow_shared(sort_tiles_kernel<PartitionsOf>, bytes);
    sort_tiles_kernel<<<space.tiles, warps * warp_size, bytes, native(stream)>>>(space, partitions_of);
    check_cuda(cudaGetLastError(), "sorting rows by partition");
}

bool is_word(DeviceNode const& node, std::int32_t width) {
    return node.layout == Layout::fixed && node.dictionary < 0 && node.validity == nullptr
           && node.width == width
           && reinterpret_cast<std::uintptr_t>(node.values) % static_cast<std::uint32_t>(width) == 0;
}

}  // namespace

void sort_tiles(RowSpace const& space, Stream stream) {
    sort(space, StoredPartitions{}, stream);
}

void sort_tiles_by_hash(
    RowSpace const& space, DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys,
    DeviceNode const& first_key, std::uint64_t seed, Stream stream) {
    if (num_keys == 1 && is_word(first_key, 8)) {
        sort(space, HashedWords<std::uint64_t>{first_key, seed}, stream);
    } else if (num_keys == 1 && is_word(first_key, 4)) {
        sort(space, HashedWords<std::uint32_t>{first_key, seed}, stream);
    } else {
        sort(space, HashedKeys{nodes, keys, num_keys, seed}, stream);
    }
}

std::size_t scan_scratch_bytes(std::uint64_t count) {
    std::size_t narrow{0};
    std::size_t wide{0};
    auto const items = static_cast<std::int64_t>(count);
    check_cuda(
        cub::DeviceScan::ExclusiveSum(
            nullptr, narrow, static_cast<std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr),
            items),
        "planning sums");
    check_cuda(
        cub::DeviceScan::ExclusiveSum(
            nullptr, wide, static_cast<std::uint64_t*>(nullptr), static_cast<std::uint64_t*>(nullptr), items),
        "planning sums");
    return narrow > wide ? narrow : wide;
}

void sum_up(
    std::uint32_t* values, std::uint64_t count, void* scratch, std::size_t scratch_bytes, Stream stream) {
    exclusive_sum(values, count, scratch, scratch_bytes, stream);
}

void sum_up(
    std::uint64_t* values, std::uint64_t count, void* scratch, std::size_t scratch_bytes, Stream stream) {
    exclusive_sum(values, count, scratch, scratch_bytes, stream);
}

void measure_lengths(RowSpace const& space, DeviceNode const& node, RunningSums sums, Stream stream) {
    auto const bytes = (static_cast<std::size_t>(space.tile_rows) + 1) * sizeof(std::uint64_t);
    allow_shared(measure_kernel, bytes);
    measure_kernel<<<space.tiles, measure_threads, bytes, native(stream)>>>(space, node, sums);
    check_cuda(cudaGetLastError(), "measuring texts and lists");
}

void count_nulls(RowSpace const& space, NullCount const* counts, int count, Stream stream) {
    NullCounts entries{};
    entries.count = count;
    for (int i = 0; i < count; ++i) {
        entries.entries[i] = counts[i];
    }
    auto const bytes = static_cast<std::size_t>(space.num_partitions) * 4 + (space.buckets() + 1) * 2;
    auto const most = num_multiprocessors() * 4;
    auto const blocks = std::min(space.tiles, most);
    allow_shared(count_nulls_kernel, bytes);
    count_nulls_kernel<<<blocks, 512, bytes, native(stream)>>>(space, entries);
    check_cuda(cudaGetLastError(), "counting nulls");
}

void collect_lengths(RowSpace const& space, RunningSums sums, std::uint64_t* lengths, Stream stream) {
    collect_kernel<<<blocks_for(space.num_partitions, 256), 256, 0, native(stream)>>>(
        sums, space.tiles, space.num_partitions, lengths);
    check_cuda(cudaGetLastError(), "collecting sizes");
}

}  // namespace rapidsmpf::detail

// Writing rows to their partitions: each tile's rows in sorted order, so that threads next to each other write to
// addresses next to each other.
#include <cuda_pipeline_primitives.h>

#include "table/gpu/block_tools.cuh"
#include "table/gpu/launch.cuh"
#include "table/gpu/partition_kernels.hpp"

namespace rapidsmpf::detail {

namespace {

// Where row k of the sorted tile comes from and goes to.
struct RowPositions {
    std::uint8_t**
        addresses;  // by partition, of the column at hand: where row 0 of the sorted tile would go; or null
    std::uint32_t* sources;  // by k: the row within the tile, and above it the partition
    std::uint32_t* bases;    // by partition: what to add to k, modulo 2^32
    std::uint16_t* starts;   // by partition: the first k
};

constexpr std::uint32_t row_bits = 16;
// With more partitions their addresses do not fit into the memory that a block's threads share.
constexpr std::uint32_t most_addresses = 4096;

// All threads; synchronizes.
__device__ std::uint32_t find_positions(
    RowSpace const& space, Tile const& tile, RowPositions const& positions) {
    load_starts(space, tile.index, positions.starts);
    __syncthreads();
    for (auto p = threadIdx.x; p < space.num_partitions; p += blockDim.x) {
        auto const start = positions.starts[p];
        positions.bases[p] = start == positions.starts[p + 1] ? 0 : row_base(space, tile.index, p, start);
    }
    auto const kept = static_cast<std::uint32_t>(positions.starts[space.num_partitions]);
    auto const* const order = space.order + tile.first;
    for (auto k = threadIdx.x; k < kept; k += blockDim.x) {
        auto const p = last_not_above(positions.starts, 0, space.num_partitions, k);
        positions.sources[k] = (p << row_bits) | order[k];
    }
    __syncthreads();
    return kept;
}

// Where row 0 of the sorted tile would go in a partition: maybe before the partition's first.
template <typename T>
__device__ std::uint8_t* address_in(
    FixedColumn const& column, RowPositions const& positions, std::uint32_t p) {
    auto const start = static_cast<std::int64_t>(positions.starts[p]);
    auto const first = static_cast<std::int64_t>(positions.bases[p] + positions.starts[p]) - start;
    return column.slots[p].values + first * static_cast<std::int64_t>(sizeof(T));
}

// The tile's values, as they lie. All threads, which have to synchronize before they read.
template <int rows_per_thread, typename T>
__device__ void stage_values(FixedColumn const& column, Tile const& tile, T* staged) {
    auto const* const values = static_cast<T const*>(column.values) + tile.first;
    if constexpr (sizeof(T) >= 4) {
        // Past the registers, of which there are few for so many threads.
        for (auto k = threadIdx.x; k < tile.rows; k += blockDim.x) {
            __pipeline_memcpy_async(staged + k, values + k, sizeof(T));
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
    } else {
        T held[rows_per_thread];
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            auto const k = static_cast<std::uint32_t>(i) * blockDim.x + threadIdx.x;
            held[i] = k < tile.rows ? values[k] : T{0};
        }
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
            staged[static_cast<std::uint32_t>(i) * blockDim.x + threadIdx.x] = held[i];
        }
    }
}

// Values of up to 8 bytes go through shared memory: read in the order they lie in, written in that of the partitions.
// All threads; synchronizes before and after.
template <int rows_per_thread, typename T>
__device__ void write_narrow(
    RowSpace const& space, FixedColumn const& column, Tile const& tile, RowPositions const& positions,
    void* memory, std::uint32_t kept) {
    auto* const staged = static_cast<T*>(memory);
    bool const has_addresses = positions.addresses != nullptr;
    if (has_addresses) {
        for (auto p = threadIdx.x; p < space.num_partitions; p += blockDim.x) {
            positions.addresses[p] = address_in<T>(column, positions, p);
        }
    }
    stage_values<rows_per_thread>(column, tile, staged);
    __syncthreads();
    for (auto k = threadIdx.x; k < kept; k += blockDim.x) {
        auto const place = positions.sources[k];
        auto const p = place >> row_bits;
        auto* const to = has_addresses ? positions.addresses[p] : address_in<T>(column, positions, p);
        reinterpret_cast<T*>(to)[k] = staged[place & 0xffffU];
    }
    __syncthreads();
}

__device__ bool is_aligned_to(FixedColumn const& column, std::uint32_t bytes) {
    return reinterpret_cast<std::uintptr_t>(column.values) % bytes == 0;
}

// Wide values: read where they are.
template <typename T>
__device__ void scatter_wide(
    FixedColumn const& column, Tile const& tile, RowPositions const& positions, std::uint32_t kept) {
    auto const* const values = static_cast<T const*>(column.values) + tile.first;
    for (auto k = threadIdx.x; k < kept; k += blockDim.x) {
        auto const place = positions.sources[k];
        auto const p = place >> row_bits;
        auto* const to = reinterpret_cast<T*>(column.slots[p].values);
        to[positions.bases[p] + k] = values[place & 0xffffU];
    }
}

struct alignas(16) Value32 {
    uint4 halves[2];
};

__device__ void scatter_bytes(
    FixedColumn const& column, Tile const& tile, RowPositions const& positions, std::uint32_t kept) {
    auto const width = static_cast<std::uint32_t>(column.width);
    auto const* const values = static_cast<std::uint8_t const*>(column.values) + tile.first * column.width;
    auto const total = static_cast<std::uint64_t>(kept) * width;
    for (std::uint64_t i = threadIdx.x; i < total; i += blockDim.x) {
        auto const k = static_cast<std::uint32_t>(i / width);
        auto const byte = static_cast<std::uint32_t>(i % width);
        auto const place = positions.sources[k];
        auto const p = place >> row_bits;
        auto const row = positions.bases[p] + k;
        column.slots[p].values[static_cast<std::uint64_t>(row) * width + byte] =
            values[static_cast<std::uint64_t>(place & 0xffffU) * width + byte];
    }
}

// As many threads as a multiprocessor has room for: while some blocks read others write.
template <int threads, int rows_per_thread>
__global__ __launch_bounds__(threads, 2048 / threads) void write_fixed_kernel(
    RowSpace space, FixedColumn const* columns, std::int32_t count) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    constexpr std::uint32_t tile_rows = threads * rows_per_thread;
    bool const has_addresses = space.num_partitions <= most_addresses;
    auto* const addresses = reinterpret_cast<std::uint8_t**>(memory + tile_rows * sizeof(std::uint64_t));
    RowPositions positions{};
    positions.addresses = has_addresses ? addresses : nullptr;
    positions.sources =
        reinterpret_cast<std::uint32_t*>(addresses + (has_addresses ? space.num_partitions : 0));
    positions.bases = positions.sources + tile_rows;
    positions.starts = reinterpret_cast<std::uint16_t*>(positions.bases + space.num_partitions);
    auto const tile = tile_at(space, blockIdx.x);
    auto const kept = find_positions(space, tile, positions);
    for (std::int32_t c = 0; c < count; ++c) {
        auto const column = columns[c];
        if (column.width == 8 && is_aligned_to(column, 8)) {
            write_narrow<rows_per_thread, std::uint64_t>(space, column, tile, positions, memory, kept);
        } else if (column.width == 4 && is_aligned_to(column, 4)) {
            write_narrow<rows_per_thread, std::uint32_t>(space, column, tile, positions, memory, kept);
        } else if (column.width == 2 && is_aligned_to(column, 2)) {
            write_narrow<rows_per_thread, std::uint16_t>(space, column, tile, positions, memory, kept);
        } else if (column.width == 1) {
            write_narrow<rows_per_thread, std::uint8_t>(space, column, tile, positions, memory, kept);
        } else if (column.width == 16 && is_aligned_to(column, 16)) {
            scatter_wide<uint4>(column, tile, positions, kept);
        } else if (column.width == 32 && is_aligned_to(column, 16)) {
            scatter_wide<Value32>(column, tile, positions, kept);
        } else {
            scatter_bytes(column, tile, positions, kept);
        }
    }
}

std::size_t write_fixed_shared_bytes(RowSpace const& space) {
    auto const partitions = static_cast<std::size_t>(space.num_partitions);
    auto const addresses = partitions <= most_addresses ? partitions * sizeof(std::uint8_t*) : 0;
    return space.tile_rows * (sizeof(std::uint64_t) + sizeof(std::uint32_t)) + addresses
           + partitions * sizeof(std::uint32_t) + (partitions + 2) * sizeof(std::uint16_t);
}

// The bits of 32 neighbouring rows mostly go to one or two words.
__global__ void write_bits_kernel(RowSpace space, BitColumn const* columns, std::int32_t count) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    auto* const starts = reinterpret_cast<std::uint16_t*>(memory);
    auto const tile = tile_at(space, blockIdx.x);
    load_starts(space, tile.index, starts);
    __syncthreads();
    auto const kept = static_cast<std::uint32_t>(starts[space.num_partitions]);
    auto const lane = threadIdx.x % warp_size;
    for (auto base = threadIdx.x - lane; base < kept; base += blockDim.x) {
        auto const k = base + lane;
        auto const active = __ballot_sync(0xffffffffU, k < kept);
        if (k >= kept) {
            continue;
        }
        auto const p = last_not_above(starts, 0, space.num_partitions, k);
        auto const to = row_base(space, tile.index, p, starts[p]) + k;
        auto const row = tile.first + space.order[tile.first + k];
        for (std::int32_t c = 0; c < count; ++c) {
            auto const& column = columns[c];
            auto* const bits = column.is_validity ? column.slots[p].validity : column.slots[p].values;
            auto const word = reinterpret_cast<std::uint64_t>(bits) + static_cast<std::uint64_t>(to / 32) * 4;
            auto const bit = bit_at(column.bits, column.bit_offset + row) ? 1U << (to % 32) : 0U;
            auto const peers = __match_any_sync(active, word);
            auto const together = __reduce_or_sync(peers, bit);
            if (bits != nullptr && together != 0 && lane == __ffs(static_cast<int>(peers)) - 1) {
                atomicOr(reinterpret_cast<std::uint32_t*>(word), together);
            }
        }
    }
}

// The bytes of a tile's run of one partition: where they begin, and how many there are.
struct TextRun {
    std::uint64_t address;
    std::uint64_t length;
};

// Writes the bytes of a tile's texts in aligned units of 16 bytes; where runs meet, byte by byte.
struct TextWriter {
    DeviceNode const& node;
    std::uint16_t const* order;   // of the tile
    std::uint64_t const* prefix;  // of the tile
    std::int64_t first;
    std::uint8_t const* limit;

    __device__ std::uint8_t const* source(std::uint32_t k) const {
        return static_cast<std::uint8_t const*>(node.data) + offset_at(node, first + order[k]);
    }
    // The next 8 bytes from byte `at` of the sorted tile, which is in text `k`.
    __device__ std::uint64_t next_word(std::uint64_t& at, std::uint32_t& k) const {
        std::uint64_t word{0};
        std::uint32_t filled{0};
        while (filled < 8) {
            auto const left = prefix[k + 1] - at;
            if (left == 0) {
                ++k;
                continue;
            }
            auto const take = left < 8 - filled ? static_cast<std::uint32_t>(left) : 8 - filled;
            word |= load_bytes(source(k) + (at - prefix[k]), take, limit) << (8 * filled);
            filled += take;
            at += take;
        }
        return word;
    }
    __device__ void write_unit(
        TextRun const& run, std::uint64_t unit, std::uint32_t begin_row, std::uint32_t end_row) const {
        auto const begin = unit < run.address ? run.address : unit;
        auto const end = unit + 16 < run.address + run.length ? unit + 16 : run.address + run.length;
        auto at = prefix[begin_row] + (begin - run.address);
        auto k = last_not_above(prefix, begin_row, end_row, at);
        if (end - begin == 16) {
            ulonglong2 words;
            words.x = next_word(at, k);
            words.y = next_word(at, k);
            *reinterpret_cast<ulonglong2*>(unit) = words;
            return;
        }
        for (auto to = begin; to < end; ++to, ++at) {
            while (prefix[k + 1] == at) {
                ++k;
            }
            *reinterpret_cast<std::uint8_t*>(to) = source(k)[at - prefix[k]];
        }
    }
};

constexpr std::uint32_t length_threads = 512;

__global__ __launch_bounds__(length_threads) void write_lengths_kernel(
    RowSpace space, DeviceNode node, std::uint64_t const* sums, DeviceSlot const* slots) {
    extern __shared__ __align__(16) std::uint8_t memory[];
    __shared__ std::uint64_t scratch[sum_scratch];
    auto* const prefix = reinterpret_cast<std::uint64_t*>(memory);
    auto* const units = prefix + space.tile_rows + 1;
    auto* const starts = reinterpret_cast<std::uint16_t*>(units + space.num_partitions + 1);
    auto const tile = tile_at(space, blockIdx.x);
    load_starts(space, tile.index, starts);
    sum_lengths(space, node, tile, prefix, scratch);
    auto const bytes_before = [&](std::uint32_t p) {
        auto const* const of_partition = sums + static_cast<std::uint64_t>(p) * space.tiles;
        return of_partition[tile.index] - of_partition[0];
    };
    auto const kept = static_cast<std::uint32_t>(starts[space.num_partitions]);
    for (auto k = threadIdx.x; k < kept; k += blockDim.x) {
        auto const p = last_not_above(starts, 0, space.num_partitions, k);
        auto const to = static_cast<std::uint64_t>(row_base(space, tile.index, p, starts[p]) + k) + 1;
        auto const offset = bytes_before(p) + prefix[k + 1] - prefix[starts[p]];
        if (has_narrow_offsets(node.layout)) {
            reinterpret_cast<std::int32_t*>(slots[p].values)[to] = static_cast<std::int32_t>(offset);
        } else {
            reinterpret_cast<std::int64_t*>(slots[p].values)[to] = static_cast<std::int64_t>(offset);
        }
    }
    if (!is_text(node.layout)) {
        return;
    }
    auto const run_of = [&](std::uint32_t p) {
        return TextRun{
            reinterpret_cast<std::uint64_t>(slots[p].data) + bytes_before(p),
            prefix[starts[p + 1]] - prefix[starts[p]]};
    };
    std::uint64_t carry{0};
    for (std::uint32_t base = 0; base < space.num_partitions; base += blockDim.x) {
        auto const p = base + threadIdx.x;
        std::uint64_t count{0};
        if (p < space.num_partitions && starts[p] != starts[p + 1]) {
            auto const run = run_of(p);
            count = run.length == 0 ? 0 : (run.address + run.length + 15) / 16 - run.address / 16;
        }
        std::uint64_t total;
        auto const before = sum_before(count, scratch, total);
        if (p < space.num_partitions) {
            units[p] = carry + before;
        }
        carry += total;
    }
    __syncthreads();
    TextWriter const writer{
        node, space.order + tile.first, prefix, tile.first,
        static_cast<std::uint8_t const*>(node.data) + offset_at(node, node.length)};
    for (std::uint64_t u = threadIdx.x; u < carry; u += blockDim.x) {
        auto const p = last_not_above(units, 0, space.num_partitions, u);
        auto const run = run_of(p);
        writer.write_unit(run, (run.address / 16 + (u - units[p])) * 16, starts[p], starts[p + 1]);
    }
}

constexpr std::uint32_t place_threads = 256;

__device__ std::uint64_t padded(std::uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

// The lengths of a column's buffers in a partition.
__device__ DeviceSlot piece_lengths(PlacedColumn const& column, std::uint32_t p) {
    auto const rows = column.rows[p];
    DeviceSlot slot{};
    slot.validity_bytes = column.nulls != nullptr && column.nulls[p] > 0 ? padded((rows + 7) / 8) : 0;
    slot.values_bytes =
        padded(column.is_bits ? (rows + 7) / 8 : rows * static_cast<std::uint32_t>(column.width));
    return slot;
}

// One block.
__global__ __launch_bounds__(place_threads) void place_kernel(
    PlacedColumn const* columns, std::uint32_t num_columns, std::uint32_t num_partitions,
    std::uint32_t const* order, std::uint8_t* base, DeviceSlot* slots) {
    __shared__ std::uint64_t scratch[sum_scratch];
    std::uint64_t carry{0};
    for (std::uint32_t first = 0; first < num_partitions; first += place_threads) {
        auto const k = first + threadIdx.x;
        auto const p = k < num_partitions && order != nullptr ? order[k] : k;
        std::uint64_t size{0};
        for (std::uint32_t c = 0; k < num_partitions && c < num_columns; ++c) {
            auto const slot = piece_lengths(columns[c], p);
            size += slot.validity_bytes + slot.values_bytes;
        }
        std::uint64_t total;
        auto* at = base + carry + sum_before(size, scratch, total);
        carry += total;
        for (std::uint32_t c = 0; k < num_partitions && c < num_columns; ++c) {
            auto slot = piece_lengths(columns[c], p);
            slot.validity = slot.validity_bytes == 0 ? nullptr : at;
            at += slot.validity_bytes;
            slot.values = slot.values_bytes == 0 ? nullptr : at;
            at += slot.values_bytes;
            slots[c * num_partitions + p] = slot;
        }
    }
}

__device__ void clear(std::uint8_t* begin, std::uint64_t bytes) {
    auto* const words = reinterpret_cast<uint4*>(begin);
    auto const stride = static_cast<std::uint64_t>(gridDim.y) * blockDim.x;
    for (auto i = static_cast<std::uint64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < bytes / 16;
         i += stride) {
        words[i] = make_uint4(0, 0, 0, 0);
    }
}

constexpr std::uint64_t padding = 64;

__global__ void clear_kernel(DeviceSlot const* slots, DeviceNode const* nodes, std::uint32_t num_partitions) {
    auto const& slot = slots[blockIdx.x];
    auto const layout = nodes[blockIdx.x / num_partitions].layout;
    clear(slot.validity, slot.validity_bytes);
    if (layout == Layout::bits) {
        clear(slot.values, slot.values_bytes);
    } else if (slot.values_bytes > 0) {
        clear(slot.values + slot.values_bytes - padding, padding);
        if (has_offsets(layout)) {
            clear(slot.values, 16);
        }
    }
    if (slot.data_bytes > 0) {
        clear(slot.data + slot.data_bytes - padding, padding);
    }
}

}  // namespace

void place_slots(
    PlacedColumn const* columns, std::uint32_t num_columns, std::uint32_t num_partitions,
    std::uint32_t const* order, void* base, DeviceSlot* slots, Stream stream) {
    place_kernel<<<1, place_threads, 0, native(stream)>>>(
        columns, num_columns, num_partitions, order, static_cast<std::uint8_t*>(base), slots);
    check_cuda(cudaGetLastError(), "placing partitions");
}

void clear_slots(
    DeviceSlot const* slots, DeviceNode const* nodes, std::uint32_t num_nodes, std::uint32_t num_partitions,
    Stream stream) {
    dim3 const blocks{num_nodes * num_partitions, num_partitions > 128 ? 1U : 32U, 1U};
    clear_kernel<<<blocks, 128, 0, native(stream)>>>(slots, nodes, num_partitions);
    check_cuda(cudaGetLastError(), "clearing padding");
}

void write_fixed(RowSpace const& space, FixedColumn const* columns, std::int32_t count, Stream stream) {
    auto const bytes = write_fixed_shared_bytes(space);
    if (space.tile_rows == 4096) {
        allow_shared(write_fixed_kernel<512, 8>, bytes);
        write_fixed_kernel<512, 8><<<space.tiles, 512, bytes, native(stream)>>>(space, columns, count);
    } else {
        allow_shared(write_fixed_kernel<1024, 8>, bytes);
        write_fixed_kernel<1024, 8><<<space.tiles, 1024, bytes, native(stream)>>>(space, columns, count);
    }
    check_cuda(cudaGetLastError(), "writing values");
}

void write_bits(RowSpace const& space, BitColumn const* columns, std::int32_t count, Stream stream) {
    auto const bytes = static_cast<std::size_t>(space.buckets() + 1) * 2;
    write_bits_kernel<<<space.tiles, 256, bytes, native(stream)>>>(space, columns, count);
    check_cuda(cudaGetLastError(), "writing bits");
}

void write_lengths(
    RowSpace const& space, DeviceNode const& node, RunningSums sums, DeviceSlot const* slots, Stream stream) {
    auto const bytes = (static_cast<std::size_t>(space.tile_rows) + space.num_partitions + 2) * 8
                       + static_cast<std::size_t>(space.buckets() + 1) * 2;
    allow_shared(write_lengths_kernel, bytes);
    write_lengths_kernel<<<space.tiles, length_threads, bytes, native(stream)>>>(space, node, sums, slots);
    check_cuda(cudaGetLastError(), "writing texts and lists");
}

}  // namespace rapidsmpf::detail

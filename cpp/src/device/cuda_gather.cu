// The gather copy: pieces travel to the kernel in its arguments (up to 32 KiB of them), so that nothing has to be
// uploaded or kept. Each warp copies chunks on its own; see gather_plan.hpp.
#include <algorithm>

#include <cuda_runtime_api.h>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/detail/gather_copy.hpp>

#include "device/gather_plan.hpp"

namespace rapidsmpf {

namespace {

constexpr int warp_size = 32;
constexpr int threads_per_block = 256;
constexpr int warps_per_block = threads_per_block / warp_size;
constexpr int blocks_per_multiprocessor = 6;
// Vectors that a thread has on their way at a time.
constexpr int direct_depth = 8;
constexpr int shifted_depth = 4;

template <int capacity>
struct Batch {
    std::uint64_t source[capacity];
    std::uint64_t destination[capacity];
    std::uint64_t bytes[capacity];
    std::uint32_t first_chunk[capacity + 1];  // the last one: how many there are
    std::uint32_t count;
    std::uint32_t chunk_bytes;
};

constexpr int small_batch = 40;
constexpr int large_batch = 1152;
static_assert(sizeof(Batch<large_batch>) <= 32764, "the arguments of a kernel end there");

__device__ void copy_direct(uint4 const* from, uint4* to, std::uint64_t count, int lane) {
    for (std::uint64_t base = 0; base < count; base += warp_size * direct_depth) {
        uint4 values[direct_depth];
#pragma unroll
        for (int i = 0; i < direct_depth; ++i) {
            auto const at = base + i * warp_size + lane;
            if (at < count) {
                values[i] = __ldcs(from + at);
            }
        }
#pragma unroll
        for (int i = 0; i < direct_depth; ++i) {
            auto const at = base + i * warp_size + lane;
            if (at < count) {
                __stcs(to + at, values[i]);
            }
        }
    }
}

template <int words>
__device__ void copy_shifted(
    uint4 const* from, uint4* to, std::uint64_t count, std::uint32_t bits, int lane) {
    for (std::uint64_t base = 0; base < count; base += warp_size * shifted_depth) {
        uint4 low[shifted_depth];
        uint4 high[shifted_depth];
#pragma unroll
        for (int i = 0; i < shifted_depth; ++i) {
            auto const at = base + i * warp_size + lane;
            if (at < count) {
                low[i] = from[at];
                high[i] = from[at + 1];  // the neighbour's own: out of the cache
            }
        }
#pragma unroll
        for (int i = 0; i < shifted_depth; ++i) {
            auto const at = base + i * warp_size + lane;
            if (at < count) {
                std::uint32_t const both[8] = {low[i].x,  low[i].y,  low[i].z,  low[i].w,
                                               high[i].x, high[i].y, high[i].z, high[i].w};
                std::uint32_t out[4];
                detail::shift_words<words>(both, bits, out);
                __stcs(to + at, make_uint4(out[0], out[1], out[2], out[3]));
            }
        }
    }
}

__device__ void copy_chunk(
    std::uint64_t source, std::uint64_t destination, detail::ChunkCopy const& copy, int lane) {
    auto const* const from = reinterpret_cast<std::uint8_t const*>(source);
    auto* const to = reinterpret_cast<std::uint8_t*>(destination);
    for (auto at = copy.begin + lane; at < copy.vectors_begin; at += warp_size) {
        to[at] = from[at];
    }
    for (auto at = copy.vectors_end + lane; at < copy.end; at += warp_size) {
        to[at] = from[at];
    }
    auto const count = (copy.vectors_end - copy.vectors_begin) / detail::vector_bytes;
    auto const* const vectors = reinterpret_cast<uint4 const*>(from + copy.vectors_begin - copy.shift);
    auto* const out = reinterpret_cast<uint4*>(to + copy.vectors_begin);
    auto const bits = copy.shift % 4 * 8;
    if (copy.shift == 0) {
        copy_direct(vectors, out, count, lane);
        return;
    }
    switch (copy.shift / 4) {  // the same for the whole warp
        case 0:
            copy_shifted<0>(vectors, out, count, bits, lane);
            break;
        case 1:
            copy_shifted<1>(vectors, out, count, bits, lane);
            break;
        case 2:
            copy_shifted<2>(vectors, out, count, bits, lane);
            break;
        default:
            copy_shifted<3>(vectors, out, count, bits, lane);
            break;
    }
}

template <int capacity>
__global__ __launch_bounds__(threads_per_block) void gather_kernel(
    __grid_constant__ Batch<capacity> const batch) {
    __shared__ std::uint32_t first_chunk[capacity + 1];
    for (auto i = threadIdx.x; i <= batch.count; i += threads_per_block) {
        first_chunk[i] = batch.first_chunk[i];
    }
    __syncthreads();
    int const lane = threadIdx.x % warp_size;
    auto const stride = gridDim.x * warps_per_block;
    auto const total = first_chunk[batch.count];
    for (auto chunk = blockIdx.x * warps_per_block + threadIdx.x / warp_size; chunk < total;
         chunk += stride) {
        auto const piece = detail::find_piece(first_chunk, batch.count, chunk);
        auto const source = batch.source[piece];
        auto const destination = batch.destination[piece];
        auto const copy = detail::plan_chunk(
            source, destination, batch.bytes[piece], chunk - first_chunk[piece], batch.chunk_bytes);
        copy_chunk(source, destination, copy, lane);
    }
}

template <int capacity>
void launch(std::span<CopyPiece const> pieces, std::uint64_t max_blocks, cudaStream_t stream) {
    Batch<capacity> batch;
    std::uint64_t total{0};
    for (auto const& piece : pieces) {
        total += piece.bytes;
    }
    batch.chunk_bytes =
        static_cast<std::uint32_t>(detail::choose_chunk_bytes(total, max_blocks * warps_per_block));
    std::uint64_t chunks{0};
    batch.count = 0;
    for (auto const& piece : pieces) {
        batch.source[batch.count] = reinterpret_cast<std::uint64_t>(piece.source);
        batch.destination[batch.count] = reinterpret_cast<std::uint64_t>(piece.destination);
        batch.bytes[batch.count] = piece.bytes;
        batch.first_chunk[batch.count] = static_cast<std::uint32_t>(chunks);
        chunks += detail::num_chunks(batch.destination[batch.count], piece.bytes, batch.chunk_bytes);
        batch.count += piece.bytes > 0 ? 1 : 0;
    }
    if (chunks == 0) {
        return;
    }
    batch.first_chunk[batch.count] = static_cast<std::uint32_t>(chunks);
    auto const blocks = std::min((chunks + warps_per_block - 1) / warps_per_block, max_blocks);
    gather_kernel<capacity><<<static_cast<unsigned>(blocks), threads_per_block, 0, stream>>>(batch);
    device::detail::check_cuda(cudaGetLastError(), "copying pieces on the GPU");
}

}  // namespace

void gather_copy_cuda(std::span<CopyPiece const> pieces, Stream stream, std::uint32_t most_processors) {
    if (pieces.empty()) {
        return;
    }
    int ordinal{0};
    int multiprocessors{0};
    device::detail::check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    device::detail::check_cuda(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal),
        "cudaDeviceGetAttribute");
    auto const all = static_cast<std::uint32_t>(multiprocessors);
    auto const used = most_processors == 0 ? all : std::min(all, most_processors);
    auto const max_blocks = static_cast<std::uint64_t>(used) * blocks_per_multiprocessor;
    auto const native = static_cast<cudaStream_t>(stream.handle());
    while (!pieces.empty()) {
        if (pieces.size() <= small_batch) {
            launch<small_batch>(pieces, max_blocks, native);
            return;
        }
        auto const now = std::min<std::size_t>(pieces.size(), large_batch);
        launch<large_batch>(pieces.first(now), max_blocks, native);
        pieces = pieces.subspan(now);
    }
}

}  // namespace rapidsmpf

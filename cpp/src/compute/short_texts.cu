// The kernels of short_texts.hpp: a thread for each string.
#include <cuda_runtime_api.h>

#include <rapidsmpf/device/detail/cuda_check.hpp>

#include "compute/short_texts_kernels.hpp"

namespace rapidsmpf::compute::kernels {

namespace {

constexpr unsigned threads = 256;

unsigned blocks_for(std::int64_t rows) {
    return static_cast<unsigned>((rows + threads - 1) / threads);
}

__device__ std::int64_t row_of_thread() {
    return std::int64_t{blockIdx.x} * threads + threadIdx.x;
}

__device__ bool is_valid(std::uint32_t const* valid, std::int64_t row) {
    return valid == nullptr || (valid[row / 32] >> (row % 32) & 1U) != 0;
}

__global__ void __launch_bounds__(threads)
    pack_all(Texts const texts, std::uint64_t* packed, std::uint32_t* is_longer) {
    auto const row = row_of_thread();
    if (row >= texts.rows) {
        return;
    }
    std::uint64_t value = 0;
    if (is_valid(texts.valid, row)) {
        auto const offset = [&](std::int64_t place) {
            return texts.has_wide_offsets
                       ? static_cast<std::int64_t const*>(texts.offsets)[place]
                       : std::int64_t{static_cast<std::int32_t const*>(texts.offsets)[place]};
        };
        auto const begin = offset(row);
        auto const bytes = offset(row + 1) - begin;
        if (bytes > most_bytes) {
            *is_longer = 1;
            return;
        }
        value = static_cast<std::uint64_t>(bytes) << (8 * most_bytes);
        for (std::int64_t i = 0; i < bytes; ++i) {
            value |= std::uint64_t{static_cast<unsigned char>(texts.characters[begin + i])} << (8 * i);
        }
    }
    packed[row] = value;
}

__global__ void __launch_bounds__(threads) places_of_all(
    std::uint64_t const* packed, std::uint32_t const* valid, std::int64_t rows, pages::StringPlace* places) {
    auto const row = row_of_thread();
    if (row >= rows) {
        return;
    }
    pages::StringPlace place;
    if (is_valid(valid, row)) {
        place.data = reinterpret_cast<char const*>(
            packed + row);  // little-endian: the string's first byte comes first
        place.bytes = static_cast<std::int32_t>(packed[row] >> (8 * most_bytes));
    }
    places[row] = place;
}

}  // namespace

void pack_texts(Texts const& texts, std::uint64_t* packed, std::uint32_t* is_longer, cudaStream_t stream) {
    if (texts.rows == 0) {
        return;
    }
    pack_all<<<blocks_for(texts.rows), threads, 0, stream>>>(texts, packed, is_longer);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

void places_of_packed(
    std::uint64_t const* packed, std::uint32_t const* valid, std::int64_t rows, pages::StringPlace* places,
    cudaStream_t stream) {
    if (rows == 0) {
        return;
    }
    places_of_all<<<blocks_for(rows), threads, 0, stream>>>(packed, valid, rows, places);
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace rapidsmpf::compute::kernels

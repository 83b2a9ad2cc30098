#include <algorithm>
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/hash.hpp>
#include <rapidsmpf/table/hash_cuda.hpp>

namespace rapidsmpf {

namespace {

constexpr int threads_per_block = 256;
// Columns travel to the kernel in its arguments; more than this take several launches.
constexpr int columns_per_launch = 16;

enum class Step : int { first = 1, last = 2 };

struct KeyColumns {
    DeviceKeyColumn columns[columns_per_launch];
    int count;
    int steps;  // which of Step this launch does
};

__device__ bool get_bit(void const* bits, std::int64_t position) {
    auto const byte = static_cast<std::uint8_t const*>(bits)[position >> 3];
    return ((byte >> (position & 7)) & 1) != 0;
}

template <typename T>
__device__ T value_at(DeviceKeyColumn const& column, std::int64_t row) {
    return static_cast<T const*>(column.values)[row];
}

__device__ std::uint64_t take_in(DeviceKeyColumn const& column, std::int64_t row, std::uint64_t state) {
    row += column.offset;
    if (column.validity != nullptr && !get_bit(column.validity, row)) {
        return hash::combine(state, hash::null_word);
    }
    switch (column.width) {
        case 0:
            return hash::combine(state, get_bit(column.values, row) ? 1 : 0);
        case 1:
            return hash::combine(state, value_at<std::uint8_t>(column, row));
        case 2: {
            auto const bits = value_at<std::uint16_t>(column, row);
            return hash::combine(state, column.kind == ValueKind::float16 ? hash::float16_word(bits) : bits);
        }
        case 4: {
            auto const bits = value_at<std::uint32_t>(column, row);
            return hash::combine(state, column.kind == ValueKind::float32 ? hash::float32_word(bits) : bits);
        }
        case 8: {
            auto const bits = value_at<std::uint64_t>(column, row);
            return hash::combine(state, column.kind == ValueKind::float64 ? hash::float64_word(bits) : bits);
        }
        default: {
            auto const words = column.width / 8;
            for (int i = 0; i < words; ++i) {
                state = hash::combine(state, value_at<std::uint64_t>(column, row * words + i));
            }
            return state;
        }
    }
}

__global__ void hash_kernel(
    KeyColumns keys, std::int64_t num_rows, std::uint64_t* hashes, std::uint64_t seed) {
    auto const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (auto row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < num_rows;
         row += stride) {
        auto state = (keys.steps & static_cast<int>(Step::first)) != 0 ? hash::start(seed) : hashes[row];
        for (int i = 0; i < keys.count; ++i) {
            state = take_in(keys.columns[i], row, state);
        }
        hashes[row] = (keys.steps & static_cast<int>(Step::last)) != 0 ? hash::finish(state) : state;
    }
}

}  // namespace

void hash_rows_cuda(
    std::span<DeviceKeyColumn const> columns, std::int64_t num_rows, std::uint64_t* hashes,
    std::uint64_t seed, Stream stream) {
    for (auto const& column : columns) {
        auto const width = column.width;
        auto const is_known =
            width == 0 || width == 1 || width == 2 || width == 4 || (width > 0 && width % 8 == 0);
        RAPIDSMPF_EXPECTS(
            is_known, "cannot hash values of " + std::to_string(width) + " bytes on a GPU",
            std::invalid_argument);
    }
    if (num_rows == 0) {
        return;
    }
    constexpr std::int64_t max_blocks = 1 << 16;
    auto const blocks = std::min((num_rows + threads_per_block - 1) / threads_per_block, max_blocks);
    std::size_t done = 0;
    do {
        auto const now =
            columns.subspan(done, std::min<std::size_t>(columns.size() - done, columns_per_launch));
        KeyColumns keys{};
        std::copy(now.begin(), now.end(), keys.columns);
        keys.count = static_cast<int>(now.size());
        keys.steps = (done == 0 ? static_cast<int>(Step::first) : 0)
                     | (done + now.size() == columns.size() ? static_cast<int>(Step::last) : 0);
        hash_kernel<<<
            static_cast<unsigned>(blocks), threads_per_block, 0,
            static_cast<cudaStream_t>(stream.handle())>>>(keys, num_rows, hashes, seed);
        auto const status = cudaGetLastError();
        RAPIDSMPF_EXPECTS(
            status == cudaSuccess, std::string{"hashing rows on the GPU: "} + cudaGetErrorString(status),
            std::runtime_error);
        done += now.size();
    } while (done < columns.size());
}

}  // namespace rapidsmpf

// The kernels of short_texts.cpp, which nvcc compiles without libcudf's headers.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <rapidsmpf/pages/detail/number_strings.hpp>

namespace rapidsmpf::compute::kernels {

// A string column in Arrow's layout: `rows` + 1 offsets of 32 or 64 bits.
struct Texts {
    char const* characters{nullptr};
    void const* offsets{nullptr};
    bool has_wide_offsets{false};
    std::uint32_t const* valid{nullptr};  // validity bitmap; null: all rows are valid
    std::int64_t rows{0};
};

inline constexpr std::int64_t most_bytes =
    7;  // of a packed string; the eighth byte of the integer holds its length

// Packs each string: its bytes, first byte lowest, into the lower seven bytes of an integer, its length into the highest byte. A null
// becomes 0. Sets `is_longer` to 1 if a string has more than seven bytes; `packed` is then undefined.
void pack_texts(Texts const& texts, std::uint64_t* packed, std::uint32_t* is_longer, cudaStream_t stream);

// The addresses and lengths of packed strings, which point into `packed`.
void places_of_packed(
    std::uint64_t const* packed, std::uint32_t const* valid, std::int64_t rows, pages::StringPlace* places,
    cudaStream_t stream);

}  // namespace rapidsmpf::compute::kernels

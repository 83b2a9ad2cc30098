// The kernels of short_texts.cpp, which nvcc compiles without libcudf's headers.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <rapidsmpf/pages/detail/number_strings.hpp>

namespace rapidsmpf::compute {

namespace kernels {

// A column of strings: the offsets of `rows` + 1 places in `characters`, of 64 bits if they are wide.
struct Texts {
    char const* characters{nullptr};
    void const* offsets{nullptr};
    bool has_wide_offsets{false};
    std::uint32_t const* valid{nullptr};  // a bit for each row; null: all rows are valid
    std::int64_t rows{0};
};

inline constexpr std::int64_t most_bytes = 7;  // of a string; how many it has is the eighth

// Writes the bytes of each string in the lower seven of an integer, and how many there are in the highest; zero for null. Sets
// `is_longer` if a string has more.
void pack_texts(Texts const& texts, std::uint64_t* packed, std::uint32_t* is_longer, cudaStream_t stream);

// Where the strings of such integers are: in the integers.
void places_of_packed(
    std::uint64_t const* packed, std::uint32_t const* valid, std::int64_t rows, pages::StringPlace* places,
    cudaStream_t stream);

}  // namespace kernels

}  // namespace rapidsmpf::compute

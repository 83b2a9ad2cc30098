// The row hash of hash.hpp for columns in GPU memory.
//
// Fixed-width and boolean columns, with or without nulls; the result is bit for bit what hash_rows() gives for the
// same values on the host.
#pragma once

#include <cstdint>
#include <span>

#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/table/schema.hpp>

namespace rapidsmpf {

// A key column; all pointers are to GPU memory.
struct DeviceKeyColumn {
    void const* values{nullptr};
    std::uint8_t const* validity{nullptr};  // one bit a row, set when valid; null: no nulls
    std::int64_t offset{0};                 // of the first row, in values and in validity
    std::int32_t width{0};  // bytes a row: 1, 2, 4 or a multiple of 8; 0: booleans, one bit a row
    ValueKind kind{ValueKind::plain};
};

// Enqueues on `stream` the computation of the hashes of `num_rows` rows into `hashes` (GPU memory). Throws
// std::invalid_argument for a width that is not one of the above, std::runtime_error when the launch fails or this
// build has no CUDA support.
void hash_rows_cuda(
    std::span<DeviceKeyColumn const> columns, std::int64_t num_rows, std::uint64_t* hashes,
    std::uint64_t seed, Stream stream);

}  // namespace rapidsmpf

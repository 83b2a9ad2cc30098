// Columns of fixed-width values that the room `pages` decodes (decode_values.hpp) instead of libcudf: with one wait for the stream
// where libcudf's reader waits twenty times, which takes milliseconds when several threads decode.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cudf/column/column.hpp>

#include "compute/operators.hpp"
#include "compute/scan/plain_chunks.hpp"

namespace rapidsmpf::compute {

// Decodes the columns of a pass that are flat and of fixed width, and whose pages are uncompressed and have simple encodings, into
// columns of the types that libcudf gives them. `places` is parallel to `chunks`. is_number[c]: the strings of column c have been
// replaced by INT32 indices, which its schema does not say. Waits for the stream. Returns null pointers for the other columns, and for
// all columns if a page is damaged or has an unexpected layout.
[[nodiscard]] std::vector<std::unique_ptr<cudf::column>> decode_fixed_width(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, std::int64_t rows, Work& work);

}  // namespace rapidsmpf::compute

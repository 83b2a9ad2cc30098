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

// Decodes those of a pass's columns that are flat, of fixed width, and whose pages are not compressed and have simple encodings, with
// libcudf's types. `places` is parallel to `chunks`; `is_number`: columns whose strings have been replaced by INT32 numbers, in spite
// of their schema. Waits for the stream. Null pointers stand for the other columns, and for all if a page is damaged or has an
// unexpected layout.
[[nodiscard]] std::vector<std::unique_ptr<cudf::column>> decode_fixed_width(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, std::int64_t rows, Work& work);

}  // namespace rapidsmpf::compute

// Columns of strings that libcudf decodes as numbers of strings.
//
// libcudf follows the strings of a dictionary page, and of a page with plain values, one by one in the device's memory: a pass
// waits ten milliseconds for a dictionary of a megabyte, however few rows it has. The room `pages` notes where they are, and
// puts numbers in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/io/parquet_schema.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "compute/operators.hpp"
#include "compute/scan/footer_parser.hpp"
#include "compute/scan/plain_chunks.hpp"

namespace rapidsmpf::compute {

// One of a pass's column chunks, with what its file says of it.
struct PassChunk {
    ColumnChunkPlace const* place{nullptr};
    cudf::io::parquet::SchemaElement const* element{nullptr};
    std::size_t column{0};
};

class NumberedStrings {
  public:
    // Replaces those of `chunks` (in the order of `places`) whose columns gain by it (ScanSettings::large_dictionary). The others, and what was replaced, have
    // to stay where they are until the columns are decoded. Waits for the stream. Nothing if there are none, or if a page is
    // not as writers make them: who decodes has to decode strings, too.
    [[nodiscard]] static std::optional<NumberedStrings> make(
        std::vector<DeviceChunk>& chunks, std::span<PassChunk const> places, std::size_t columns,
        std::int64_t large_dictionary, Work& work);

    [[nodiscard]] bool has(std::size_t column) const { return columns_[column]; }

    // Says of a column that it has numbers.
    static void describe(cudf::io::parquet::SchemaElement& element);

    // Makes strings of the columns that have numbers, in their places, when those have been decoded. Throws std::runtime_error if
    // there is no such string.
    void put_strings(std::vector<std::unique_ptr<cudf::column>>& columns, Work& work);

  private:
    NumberedStrings() = default;

    std::vector<bool> columns_;
    pages::NumberPlan plan_;
    rmm::device_buffer plan_memory_;
    rmm::device_buffer chunks_;
    rmm::device_buffer places_;
};

}  // namespace rapidsmpf::compute

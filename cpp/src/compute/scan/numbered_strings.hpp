// String columns that are decoded as INT32 columns of indices, from which the strings are gathered afterwards.
//
// libcudf walks over the strings of a dictionary page or PLAIN page one by one: a pass waits 10 ms for a dictionary of 1 MiB, however
// few rows it has. The room `pages` finds the strings with many warps (number_strings.hpp).
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
#include "compute/scan/plain_chunks.hpp"

namespace rapidsmpf::compute {

class NumberedStrings {
  public:
    // Rewrites the chunks of string columns at the top level, and updates `chunks`, which is parallel to `places`. The old chunks must
    // stay valid until put_strings() has returned. Waits for the stream. Returns nothing if no column qualifies, or if a page is
    // damaged or has an unexpected layout: `chunks` is then unchanged, and libcudf decodes the strings.
    [[nodiscard]] static std::optional<NumberedStrings> make(
        std::vector<DeviceChunk>& chunks, std::span<PassChunk const> places, std::size_t columns, Work& work);

    // For each column whether it has been rewritten.
    [[nodiscard]] std::vector<bool> const& columns() const { return columns_; }

    // Changes the schema of a rewritten column to INT32.
    static void describe(cudf::io::parquet::SchemaElement& element);

    // Replaces the decoded index columns by the columns of their strings. Throws std::runtime_error if an index is out of range.
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

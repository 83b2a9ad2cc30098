// String columns that are decoded as INT32 columns of indices, from which the strings are gathered afterwards. Columns of few distinct
// strings get codes instead, which are the same in all passes (string_codes.hpp).
//
// libcudf walks over the strings of a dictionary page or PLAIN page one by one: a pass waits 10 ms for a dictionary of 1 MiB, however
// few rows it has. The room `pages` finds the strings with many warps (number_strings.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/io/parquet_schema.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/pages/detail/code_strings.hpp>
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

    // The codes for a column, whose dictionaries have so many strings in all; null: it is not to be coded.
    using CodesFor = std::function<StringCodesPtr(std::size_t column, std::size_t strings)>;

    // Replaces the decoded index columns by the columns of their strings, or of their codes; returns which are coded. Columns can be
    // coded if all their pages have dictionary indices. Throws std::runtime_error if an index is out of range.
    [[nodiscard]] Coding put_strings(
        std::vector<std::unique_ptr<cudf::column>>& columns, CodesFor const& codes_for, Work& work);

  private:
    // The dictionaries of a column.
    struct Dictionaries {
        bool has_all{true};  // the strings of all its pages
        std::vector<pages::StringRange> ranges;
        std::size_t strings{0};
    };
    struct CodedColumn;

    NumberedStrings() = default;
    [[nodiscard]] std::vector<CodedColumn> enqueue_codes(
        std::vector<std::unique_ptr<cudf::column>> const& columns, CodesFor const& codes_for,
        Work& work) const;
    void put_strings_of(std::unique_ptr<cudf::column>& column, Work& work) const;
    // Waits for the stream.
    void check_indices(Work& work) const;

    std::vector<bool> columns_;
    std::vector<Dictionaries> dictionaries_;  // of each column
    std::uint32_t strings_{0};
    pages::NumberPlan plan_;
    rmm::device_buffer plan_memory_;
    rmm::device_buffer chunks_;
    rmm::device_buffer places_;
};

}  // namespace rapidsmpf::compute

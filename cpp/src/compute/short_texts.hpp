// Strings of a few bytes as integers. Keys of a few letters (flags, modes, codes of countries) are common, and libcudf hashes and
// compares two columns of integers three times as fast as two of strings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/table/table_view.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Columns in which those of short strings are integers, equal where the strings are. Refers to the columns that it was made of.
class ShortTexts {
  public:
    // Looks at every string of columns that are long enough to be worth it, and waits for the stream.
    ShortTexts(cudf::table_view const& columns, Work& work);

    [[nodiscard]] cudf::table_view const& view() const noexcept { return view_; }

    // Makes strings of the columns, in their order, that are integers in view().
    void put_strings(std::vector<std::unique_ptr<cudf::column>>& columns, Work& work) const;

  private:
    std::vector<std::unique_ptr<cudf::column>> packed_;  // null: the column is what it was
    cudf::table_view view_;
};

}  // namespace rapidsmpf::compute

// Packs strings of at most seven bytes into INT64 values. Such keys are common (flags, modes, country codes), and libcudf groups by
// integers two to six times as fast as by strings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/table/table_view.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// A view of key columns in which columns of short strings are INT64. Equal values stand for equal strings. Refers to the input columns.
class ShortTexts {
  public:
    // Packs the string columns that have enough rows and no longer string. Waits for the stream if there are string columns.
    ShortTexts(cudf::table_view const& columns, Work& work);

    [[nodiscard]] cudf::table_view const& view() const noexcept { return view_; }

    // Unpacks the columns that are packed in view(). `columns`: the keys of the result, in the order of view().
    void put_strings(std::vector<std::unique_ptr<cudf::column>>& columns, Work& work) const;

  private:
    std::vector<std::unique_ptr<cudf::column>> packed_;  // null: the column was not packed
    cudf::table_view view_;
};

}  // namespace rapidsmpf::compute

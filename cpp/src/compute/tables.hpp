// What operators do with libcudf's tables again and again.
//
// A column's memory is released on the stream that it was allocated on. Code that takes over a table which another thread made
// either waits for all work on it before it goes, or has it adopted by its own stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/column/column_view.hpp>
#include <cudf/copying.hpp>
#include <cudf/table/table.hpp>
#include <cudf/table/table_view.hpp>
#include <cudf/types.hpp>
#include <rmm/device_uvector.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

using TablePtr = std::unique_ptr<cudf::table>;
using ColumnPtr = std::unique_ptr<cudf::column>;
using RowMap = rmm::device_uvector<cudf::size_type>;

// The most rows that a table of libcudf can have.
inline constexpr std::int64_t most_rows = 2'147'483'647;

[[nodiscard]] cudf::data_type to_cudf(DataType const& type);

// No rows.
[[nodiscard]] TablePtr empty_table(std::span<DataType const> types);
// Null in every row. A nested type alone does not say the types of what is in it: lists are of INT8, structs without fields.
[[nodiscard]] ColumnPtr null_column(cudf::data_type type, cudf::size_type rows, Work& work);
// The same, with the types of a column and of all that is in it.
[[nodiscard]] ColumnPtr null_column(cudf::column_view const& like, cudf::size_type rows, Work& work);

// The same table, whose memory is released on the stream from now on. What was put on other streams must be done.
[[nodiscard]] TablePtr adopt(TablePtr table, cuda::stream_ref stream);
[[nodiscard]] ColumnPtr adopt(ColumnPtr column, cuda::stream_ref stream);

// The rows of all tables in one, in this order; the tables are freed. Waits. There is one table at least; throws
// std::length_error that names `what` if there are more rows than a table can have.
[[nodiscard]] TablePtr concatenate(std::vector<TablePtr> tables, char const* what, Work& work);

// Columns by their places.
[[nodiscard]] cudf::table_view select(cudf::table_view const& table, std::span<std::int32_t const> columns);
// The same of a table that is used up.
[[nodiscard]] TablePtr keep_columns(TablePtr table, std::span<std::int32_t const> columns);

// Rows [begin, begin + length) as a table of their own.
[[nodiscard]] TablePtr copy_rows(
    cudf::table_view const& table, std::int64_t begin, std::int64_t length, Work& work);

[[nodiscard]] cudf::column_view as_column(RowMap const& map);
[[nodiscard]] TablePtr gather_rows(
    cudf::table_view const& table, cudf::column_view const& map, cudf::out_of_bounds_policy bounds,
    Work& work);

// Left's columns, then right's, which have as many rows.
[[nodiscard]] TablePtr join_columns(TablePtr left, TablePtr right);

// The column as that type: itself if it has it already.
[[nodiscard]] ColumnPtr cast_to(ColumnPtr column, cudf::data_type type, Work& work);

// NaNs and zeros of one sign in columns of floats.
[[nodiscard]] ColumnPtr normalized(ColumnPtr column, Work& work);

// Where begin and end of a range lie among so many rows.
struct RowSpan {
    std::int64_t begin{0};
    std::int64_t end{0};
};
[[nodiscard]] RowSpan resolve(RowRange const& range, std::int64_t rows);

// How many rows from the start contain the range; nothing if that depends on their number.
[[nodiscard]] std::optional<std::int64_t> rows_needed(RowRange const& range);

}  // namespace rapidsmpf::compute

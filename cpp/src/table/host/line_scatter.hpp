// Copies the rows of a table to the pieces of many partitions in one pass over them, in their own order.
//
// With many partitions, rows that go to the same one lie far apart: to gather them piece by piece costs a cache miss each, and to
// write each row where it goes costs a line that is read, changed in part and driven out again. So the next line of every
// piece is kept in a cache until it is full, and then written whole. What that costs hardly depends on how many partitions there
// are, as long as their lines fit in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// The values of a column of fixed width.
struct FixedValues {
    std::byte const* values;  // of row 0
    std::int64_t width;       // of a value, in bytes
};

// Whether the values of such a column can be copied here.
[[nodiscard]] bool can_scatter_lines(Field const& field);
// Whether a table of such columns can be partitioned here, and is so faster than by gathering each partition's rows.
[[nodiscard]] bool should_scatter_lines(
    std::span<Field const> fields, std::int64_t num_rows, std::size_t num_partitions);

// `of_row`: the partition of each row. `pieces`: by column, then partition, where the values of its rows go: a place that begins a
// line and has room for a whole number of them. What is behind the last row in its line becomes zero.
void scatter_lines(
    std::span<FixedValues const> columns, std::span<std::byte* const> pieces,
    std::span<std::uint16_t const> of_row, std::size_t num_partitions);

}  // namespace rapidsmpf::detail

// Partitioning tables whose columns are all of fixed width and without nulls.
//
// A small table's partitions of a few rows each cost more to count, place and describe, column by column, than to copy: here each
// is written as a whole, in the order of memory. With many partitions, rows are scattered line by line (line_scatter.hpp). The
// metadata of all are copies of one pattern. All other tables, and large parts, are for the PackWriter, with the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// How a table is partitioned here: part by part, or line by line.
enum class FixedPath : std::uint8_t { none, by_indexing, by_lines };

// The fastest way for a table in host memory and so many partitions; none: the PackWriter's.
[[nodiscard]] FixedPath fixed_path(Table const& table, std::size_t num_partitions);

// Fills in the partitions of the rows from `first` on.
using PartitionsOf = std::function<void(std::int64_t first, std::span<std::uint32_t> partitions)>;

// `path`: as fixed_path() says, not none. `placement` as in partition_and_pack.
[[nodiscard]] std::vector<PackedData> partition_fixed(
    Table const& table, std::size_t num_partitions, FixedPath path, PartitionsOf const& partitions_of,
    std::span<std::uint32_t const> placement, BufferResource& br);

}  // namespace rapidsmpf::detail

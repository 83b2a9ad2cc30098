// Cutting a table where that is plain: all columns are of fixed width and have no nulls.
//
// A small table's pieces of a few rows each cost more to count, place and describe, column by column, than to copy: here each is
// written whole, one after the other as they lie in memory. With many partitions, rows go to their pieces line by line
// (line_scatter.hpp). The metadata of all come from one pattern. Everything else, and large pieces of few partitions, go through
// the Packer, which makes the same of it.
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

// How a table is cut here. Gathered rows go piece by piece, through the caches or past them.
enum class FixedPath : std::uint8_t { none, by_indexing, by_streaming, by_lines };

// The fastest way for a table in host memory and so many pieces; none if it should not be cut here.
[[nodiscard]] FixedPath fixed_path(Table const& table, std::size_t num_partitions);

// Fills in the partitions of the rows from `first` on.
using PartitionsOf = std::function<void(std::int64_t first, std::span<std::uint32_t> partitions)>;

// `path`: as fixed_path() says, not none. `placement` as in partition_and_pack.
[[nodiscard]] std::vector<PackedData> partition_fixed(
    Table const& table, std::size_t num_partitions, FixedPath path, PartitionsOf const& partitions_of,
    std::span<std::uint32_t const> placement, BufferResource& br);

}  // namespace rapidsmpf::detail

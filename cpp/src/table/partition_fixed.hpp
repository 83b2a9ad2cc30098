// Cutting a small table into many pieces where that is plain: all columns are of fixed width and have no nulls.
//
// A piece of a few rows costs more to count, place and describe, column by column, than to copy. Here each is written whole, one
// after the other as they lie in memory, and the metadata of all come from one pattern. Everything else goes through the
// Packer, which makes the same of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// Whether a table in host memory may be cut into so many pieces here.
[[nodiscard]] bool can_partition_fixed(Table const& table, std::size_t num_partitions);

// `partitions`: of each row. `placement` as in partition_and_pack.
[[nodiscard]] std::vector<PackedData> partition_fixed(
    Table const& table, std::size_t num_partitions, std::span<std::uint32_t const> partitions,
    std::span<std::uint32_t const> placement, BufferResource& br);

}  // namespace rapidsmpf::detail

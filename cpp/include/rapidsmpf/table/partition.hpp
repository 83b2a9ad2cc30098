// Partitions a table into packed tables, and concatenates packed tables.
//
// Rows keep their order within a partition. Each function makes one pass to count and one that writes every row
// to its final place; no table per partition exists in between. Small partitions that are neighbours (as numbered, or
// in `placement` order) share allocations of about 1 MiB, in which they are adjacent.
//
// Every partition of the result is there, also without rows: its PackedData then holds the schema only. Memory
// comes from the compute device's tier on a CPU and from HOST otherwise; partitioning may overbook it, concatenation
// may not. Thread-safe for different results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf {

// Partition of a row: the top of its hash times num_partitions (see hash.hpp). Equal keys of equally typed tables
// go to the same partition on every rank that uses the same seed. No key columns: all rows go to one partition.
// Throws std::out_of_range for a column that is not there, std::invalid_argument for num_partitions < 1.
// `placement`: the order in which partitions lie in memory (a permutation of [0, num_partitions)); empty: the one that is
// advised for `br` (PartitionOrderHint), or as numbered.
[[nodiscard]] std::vector<PackedData> partition_and_pack(
    Table const& table, std::span<int const> key_columns, int num_partitions, BufferResource& br,
    std::uint64_t seed = 0, std::span<std::uint32_t const> placement = {});

// The number of the partition of each row is in a column of uint32 without nulls, which is left out of the result.
// Throws std::out_of_range for a column that is not there or a number that is not below num_partitions,
// std::invalid_argument for a column of another type or with nulls.
[[nodiscard]] std::vector<PackedData> partition_by_column_and_pack(
    Table const& table, int pid_column, int num_partitions, BufferResource& br,
    std::span<std::uint32_t const> placement = {});

// The number of the partition of each row is in `numbers`, each of which must be below num_partitions. For tables in host memory.
// Throws std::invalid_argument for others and if there are not as many numbers as rows.
[[nodiscard]] std::vector<PackedData> partition_by_numbers_and_pack(
    Table const& table, std::span<std::uint32_t const> numbers, int num_partitions, BufferResource& br,
    std::span<std::uint32_t const> placement = {});
// The numbers that partition_by_column_and_pack goes by, of a table in host memory. Throws as that does.
[[nodiscard]] std::vector<std::uint32_t> partition_column(
    Table const& table, int pid_column, int num_partitions);

// The number of the partition of each row of `table` by the hash of its key columns, as partition_and_pack has it.
[[nodiscard]] std::vector<std::uint32_t> hash_partition_ids(
    Table const& table, std::span<int const> key_columns, int num_partitions, std::uint64_t seed = 0);

// Part i holds rows [splits[i-1], splits[i]), with 0 before and the number of rows after. Throws std::out_of_range
// when a split is outside of [0, num_rows] or smaller than the one before.
[[nodiscard]] std::vector<PackedData> split_and_pack(
    Table const& table, std::span<std::int64_t const> splits, BufferResource& br);

// The rows of all parts, in this order. Dictionaries that differ are unified. One part with rows comes back as views
// of its bytes. Parts that are empty (PackedData::empty()) are ignored, parts without rows only give their schema.
// Each part's memory is freed as soon as its rows are copied. Throws std::invalid_argument when there is no part that
// says the schema or when schemas differ (naming the column), FormatError for malformed parts, ReservationError when
// there is no memory and overbooking is not allowed.
[[nodiscard]] Table unpack_and_concat(
    std::vector<PackedData>&& parts, BufferResource& br, ValidateData validate = ValidateData::bounds,
    AllowOverbooking allow = AllowOverbooking::no);

// The same, with the result in the memory of the compute device. On a GPU it is ordered on `stream`, which waits for
// what wrote the parts; parts that have been spilled are brought back. (Where unpack_and_concat() finds a part in the
// memory of a GPU, it does this on that part's stream.)
[[nodiscard]] Table unpack_and_concat_on_device(
    std::vector<PackedData>&& parts, BufferResource& br, Stream stream,
    AllowOverbooking allow = AllowOverbooking::no);

// The rows of all tables, in this order; as above.
[[nodiscard]] Table concat(
    std::span<Table const> tables, BufferResource& br, AllowOverbooking allow = AllowOverbooking::no);

}  // namespace rapidsmpf

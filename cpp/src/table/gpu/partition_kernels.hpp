// The steps of partitioning on a GPU, each a kernel that is enqueued on a stream. All pointers are to memory that the
// GPU can address; nothing here waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rapidsmpf/device/device.hpp>

#include "table/gpu/device_node.hpp"
#include "table/gpu/row_space.hpp"

namespace rapidsmpf::detail {

// A column of fixed-width values to be written; `slots` by partition.
struct FixedColumn {
    void const* values;
    DeviceSlot const* slots;
    std::int32_t width;
};
// A bitmap to be written: of validity, or of values that are bits.
struct BitColumn {
    std::uint8_t const* bits;
    std::int64_t bit_offset;
    DeviceSlot const* slots;
    bool is_validity;
};
// Whose nulls to count, and where: by partition.
struct NullCount {
    std::uint8_t const* bits;
    std::int64_t bit_offset;
    std::uint64_t* nulls;
};

// Which partition each row of a space belongs to: by row number, by a column, or as the list that an item is in. By
// hash: see sort_tiles_by_hash().
// `splits`: num_partitions - 1 row numbers.
void assign_by_splits(RowSpace const& space, std::int64_t const* splits, Stream stream);
// `highest`: is raised to the highest number found. Rows of numbers that are too high are dropped.
void assign_by_column(
    RowSpace const& space, std::uint32_t const* column, std::uint32_t* highest, Stream stream);
void assign_to_first(RowSpace const& space, Stream stream);
void assign_items(RowSpace const& space, RowSpace const& parent, DeviceNode const& list, Stream stream);

// Hashes of rows, for their own sake.
void hash_nodes(
    DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys, std::int64_t rows,
    std::uint64_t seed, std::uint64_t* hashes, Stream stream);

// Sorts tiles and counts: fills order, starts and (unsummed) before, and adds to totals.
void sort_tiles(RowSpace const& space, Stream stream);
// The same for rows that go where the hash of their keys says. `nodes` and `keys` are in device memory; `first_key`: the
// node of the first key, if there are any.
void sort_tiles_by_hash(
    RowSpace const& space, DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys,
    DeviceNode const& first_key, std::uint64_t seed, Stream stream);
// Bytes of scratch memory that the sums below need.
[[nodiscard]] std::size_t scan_scratch_bytes(std::uint64_t count);
void sum_up(
    std::uint32_t* values, std::uint64_t count, void* scratch, std::size_t scratch_bytes, Stream stream);
void sum_up(
    std::uint64_t* values, std::uint64_t count, void* scratch, std::size_t scratch_bytes, Stream stream);

// Lengths of texts or lists, by partition and tile: fills `sums`, to be summed up.
void measure_lengths(RowSpace const& space, DeviceNode const& node, RunningSums sums, Stream stream);
// At most max_null_counts of them at a time. Adds.
inline constexpr int max_null_counts = 32;
void count_nulls(RowSpace const& space, NullCount const* counts, int count, Stream stream);
// What is known in the end, by partition.
void collect_lengths(RowSpace const& space, RunningSums sums, std::uint64_t* lengths, Stream stream);

// A column of fixed width whose slots the GPU places by itself, as PackedLayout::place() does.
struct PlacedColumn {
    std::uint64_t const* rows;   // by partition
    std::uint64_t const* nulls;  // likewise; null: none
    std::int32_t width;          // of a value; 0: it has none of its own
    bool is_bits;
};
// The slots of all columns and partitions in the memory at `base`, partitions in `order` (null: as numbered).
void place_slots(
    PlacedColumn const* columns, std::uint32_t num_columns, std::uint32_t num_partitions,
    std::uint32_t const* order, void* base, DeviceSlot* slots, Stream stream);
// Zeroes bitmaps, first offsets and padding.
void clear_slots(
    DeviceSlot const* slots, DeviceNode const* nodes, std::uint32_t num_nodes, std::uint32_t num_partitions,
    Stream stream);
// The descriptors are in device memory.
void write_fixed(RowSpace const& space, FixedColumn const* columns, std::int32_t count, Stream stream);
void write_bits(RowSpace const& space, BitColumn const* columns, std::int32_t count, Stream stream);
// Offsets, and of a text its bytes.
void write_lengths(
    RowSpace const& space, DeviceNode const& node, RunningSums sums, DeviceSlot const* slots, Stream stream);

}  // namespace rapidsmpf::detail

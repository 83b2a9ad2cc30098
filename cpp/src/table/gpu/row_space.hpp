// Rows that are distributed over partitions, on the device: the table's own, the items of a list column, the values
// of a dictionary. All columns of a space share what is worked out for it.
//
// Rows are taken in tiles of some thousand. Within a tile they are sorted by partition, in stable order (`order`), so
// that what a tile writes to a partition is one run; `before` says how many rows of a partition lie in tiles before.
// So row k of a sorted tile goes to row before(p, tile) + k - starts(tile, p) of its partition.
#pragma once

#include <cstdint>

#include "table/host/hash.hpp"

namespace rapidsmpf::detail {

struct RowSpace {
    std::uint16_t* partitions{nullptr};  // of each row; num_partitions: the row is dropped
    std::uint16_t* order{nullptr};  // of each tile: its rows, sorted; may share the memory of `partitions`
    std::uint16_t* starts{
        nullptr};  // of each tile: where its run of each bucket begins, and its number of rows
    std::uint32_t* before{nullptr};  // by bucket, then tile, running through all; one more at the end
    std::uint64_t* totals{nullptr};  // by partition: its rows
    std::int64_t rows{0};
    std::uint32_t tiles{0};
    std::uint32_t tile_rows{0};
    std::uint32_t num_partitions{0};

    // Partitions, and one for the rows that are dropped.
    [[nodiscard]] RAPIDSMPF_HOST_DEVICE std::uint32_t buckets() const noexcept { return num_partitions + 1; }
};

// Sums of the lengths of a space's texts or lists: like RowSpace::before, without the dropped rows' bucket.
using RunningSums = std::uint64_t*;

// Where a column's buffers of one partition are, and how long they are with their padding. A null address: none.
struct DeviceSlot {
    std::uint8_t* validity;
    std::uint8_t* values;
    std::uint8_t* data;
    std::uint64_t validity_bytes;
    std::uint64_t values_bytes;
    std::uint64_t data_bytes;
};

// More partitions than this do not fit into the memory that the threads of a block share.
inline constexpr std::uint32_t max_device_partitions = 16384;
inline constexpr std::int64_t max_space_rows = 0xfffffffe;

// Long enough for runs of some length.
[[nodiscard]] constexpr std::uint32_t choose_tile_rows(std::uint32_t num_partitions) noexcept {
    return num_partitions <= 256 ? 4096 : 8192;
}

}  // namespace rapidsmpf::detail

// Where the buffers of packed tables go, once it is known how many rows, bytes and nulls each column has in each
// partition: plain arithmetic that is independent of where the memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/table/schema.hpp>

#include "table/packed/packed_format.hpp"

namespace rapidsmpf::detail {

// Bytes rounded up to a whole number of pieces' alignment.
[[nodiscard]] std::size_t padded_size(std::int64_t bytes);
// Bytes of the values, views or offsets of `rows` rows, without padding.
[[nodiscard]] std::int64_t values_bytes(Field const& field, std::int64_t rows);

// A column node of one partition.
struct ColumnSlot {
    // Counted.
    std::int64_t rows{0};
    std::int64_t bytes{0};  // of text
    std::int64_t nulls{0};  // more than none: a bitmap is placed. The metadata has the number of that time
    std::vector<std::int64_t> segment_ends{};  // of a view column: where the buffers within `data` end
    // Placed: offsets within the partition's buffer; a buffer without bytes has none.
    static constexpr std::uint64_t nowhere = UINT64_MAX;
    std::uint64_t validity{nowhere};
    std::uint64_t values{nowhere};
    std::uint64_t data{nowhere};
};

class PackedLayout {
  public:
    // `fields`: of each node, in the order of the metadata; they must outlive this.
    PackedLayout(std::vector<Field const*> fields, std::size_t num_partitions);

    [[nodiscard]] std::size_t num_nodes() const noexcept { return fields_.size(); }
    [[nodiscard]] std::size_t num_partitions() const noexcept { return num_partitions_; }
    [[nodiscard]] Field const& field(std::size_t node) const noexcept { return *fields_[node]; }
    [[nodiscard]] ColumnSlot& slot(std::size_t node, std::size_t partition) noexcept {
        return slots_[node * num_partitions_ + partition];
    }
    [[nodiscard]] ColumnSlot const& slot(std::size_t node, std::size_t partition) const noexcept {
        return slots_[node * num_partitions_ + partition];
    }

    // Gives every buffer its place; returns the size of each partition's memory. Throws std::invalid_argument when a
    // column has more bytes or items than its offsets can number.
    [[nodiscard]] std::vector<std::size_t> place();
    // The metadata of a partition; `beginning` is what PackedMetadataWriter::beginning() makes of the schema.
    [[nodiscard]] std::vector<std::uint8_t> metadata(
        std::size_t partition, PackedBeginning const& beginning, std::int64_t rows, std::uint64_t size) const;

  private:
    void check_lengths(std::size_t node, std::size_t partition) const;

    std::vector<Field const*> fields_;
    std::size_t num_partitions_;
    std::vector<ColumnSlot> slots_;  // by node, then partition
};

}  // namespace rapidsmpf::detail

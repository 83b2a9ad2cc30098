// The metadata blob of a packed table, byte by byte (see packed.hpp for what it holds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/schema.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// Every buffer of a packed table starts at a multiple of this.
inline constexpr std::size_t buffer_alignment = 64;

// A buffer within the data; an empty one has offset 0.
struct BufferRef {
    std::uint64_t offset{0};
    std::uint64_t length{0};
};

// One column node. Which of the pieces it has follows from its layout.
struct PackedNode {
    std::int64_t length{0};
    std::int64_t null_count{0};
    BufferRef validity;
    BufferRef values;                    // values, views or offsets
    BufferRef data;                      // what offsets or views point to
    std::vector<std::int64_t> variadic;  // lengths of the buffers within `data`
};

// What the metadata of all tables with one schema begin with; its own type, so that the bytes of a schema are not taken for it.
struct PackedBeginning {
    std::vector<std::uint8_t> bytes;
};

// Nodes in the order in which they are written: depth first, children before the dictionary.
class PackedMetadataWriter {
  public:
    [[nodiscard]] static PackedBeginning beginning(Schema const& schema);

    PackedMetadataWriter(
        PackedBeginning const& beginning, std::int64_t num_rows, std::uint64_t data_size,
        std::size_t expected_nodes);
    void node(Layout layout, PackedNode const& node);
    [[nodiscard]] std::vector<std::uint8_t> finish();

  private:
    std::vector<std::uint8_t> bytes_;
};

// The same for many tables with columns of fixed width alone, none of them with nulls, that lie one behind the other in the
// data: they differ in a few numbers.
class FixedMetadataWriter {
  public:
    explicit FixedMetadataWriter(Schema const& schema);
    [[nodiscard]] std::vector<std::uint8_t> of(std::int64_t num_rows, std::uint64_t data_size);

  private:
    std::vector<std::int64_t> widths_;
    std::size_t nodes_at_;
    std::vector<std::uint8_t> bytes_;  // of the last one
};

struct PackedParts {
    PackedInfo info;
    std::span<std::uint8_t const> schema;
    std::span<std::uint8_t const> nodes;
};

// Checks magic, version, size and checksum. Throws FormatError.
[[nodiscard]] PackedParts split_packed_metadata(std::span<std::uint8_t const> metadata);

// The columns that the nodes describe, as views of `data`. Checks that every piece lies within the data and is as long
// as its type and rows need, not what pieces contain. Throws FormatError.
[[nodiscard]] std::vector<Column> read_packed_columns(
    Schema const& schema, PackedParts const& parts, std::span<std::byte const> data);

// For a schema with columns of fixed width alone: appends where the values of each column begin. False, and nothing can be
// said of what was appended, when there are nulls or anything is not as it should be: read_packed_columns() says what.
[[nodiscard]] bool read_fixed_columns(
    Schema const& schema, PackedParts const& parts, std::span<std::byte const> data,
    std::vector<std::byte const*>& values);

// Whether reading the columns stays within their buffers; with `full` whether their content is right. Throws
// FormatError naming the column.
void validate_columns(Schema const& schema, std::vector<Column> const& columns, ValidateData validate);

// Whether the host cannot read it, but the compute device can.
[[nodiscard]] bool is_on_gpu(Buffer const& buffer);

// unpack() where the schema is known already, and the metadata checked: `parts` refers to it.
[[nodiscard]] Table unpack_as(
    std::shared_ptr<Schema const> schema, std::shared_ptr<PackedData const> packed, PackedParts const& parts,
    ValidateData validate);

}  // namespace rapidsmpf::detail

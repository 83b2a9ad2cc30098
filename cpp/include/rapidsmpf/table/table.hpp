// A table: a schema and one record batch, laid out as Arrow prescribes, in host memory or in that of a GPU.
//
// Columns are views; `owner` keeps their memory alive and is shared by every Table and every exported
// ArrowArray made from it, so importing, exporting, slicing and selecting copy nothing. Immutable.
// The pointers of a table on a GPU must not be followed by the host; what the bytes are is ordered on its stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/schema.hpp>

namespace rapidsmpf {

// One node of a column's tree. Which pointers are set follows from the Field's layout:
//   bits, fixed: values; offsets*: offsets, values; view: values (the views), variadic;
//   list*: offsets, children[0]; fixed_list: children[0]; structure: children; codes of a dictionary: `dictionary`.
// `offset` is the index of the first row within the buffers. A fixed_list and a structure have none but in their
// validity: it has been applied to their children, which have length * width and length rows.
struct Column {
    std::int64_t length{0};
    std::int64_t null_count{0};  // exact; on a GPU -1 when not counted
    std::int64_t offset{0};
    // One bit a row, set when valid, from bit `offset` on. Null when no row is null (and for Layout::null).
    std::uint8_t const* validity{nullptr};
    std::byte const* values{nullptr};
    void const* offsets{nullptr};     // int32_t or int64_t, length + 1 of them from `offset` on
    std::span<std::byte const> data;  // offsets*: what the offsets point into
    std::vector<std::span<std::byte const>> variadic;
    std::vector<Column> children;
    std::shared_ptr<Column const> dictionary;

    [[nodiscard]] bool is_valid(std::int64_t row) const noexcept {
        auto const bit = row + offset;
        return validity == nullptr || ((validity[bit >> 3] >> (bit & 7)) & 1) != 0;
    }
};

// Where the columns are: host memory, or that of a GPU.
enum class TablePlace : std::uint8_t { host, gpu };

class Table {
  public:
    // `owner` keeps the columns' memory. Columns fit the schema and have `num_rows` rows each (not checked deeply:
    // the caller must see to it). Throws std::invalid_argument when their numbers differ.
    Table(
        std::shared_ptr<Schema const> schema, std::vector<Column> columns, std::int64_t num_rows,
        std::shared_ptr<void const> owner, TablePlace place = TablePlace::host, Stream stream = {});
    // No rows.
    [[nodiscard]] static Table empty(std::shared_ptr<Schema const> schema);

    // Takes over a record batch (a struct array) without copying its buffers. `array` is left released, also when it
    // throws. Throws std::invalid_argument when the array does not have the form that the schema says or has null
    // rows at its top. What buffers contain is trusted, as the Arrow C interface has it.
    [[nodiscard]] static Table import_arrow(std::shared_ptr<Schema const> schema, ArrowArray* array);
    // The same, with the schema of the array. Both are left released.
    [[nodiscard]] static Table import_arrow(ArrowSchema* schema, ArrowArray* array);
    // Takes over a record batch of the device interface: from a CUDA device a table on a GPU, ordered on `stream`,
    // which is made to wait for the producer's event; from the CPU one in host memory. `array` is left released, also
    // when it throws. Throws std::invalid_argument as above, for another kind of device and another GPU than the
    // current one.
    [[nodiscard]] static Table import_device_array(
        std::shared_ptr<Schema const> schema, ArrowDeviceArray* array, Stream stream);

    void export_schema(ArrowSchema* out) const { schema_->to_arrow(out); }
    // The rows as a struct array that shares this table's memory.
    void export_array(ArrowArray* out) const;
    // On a GPU with an event that a consumer has to wait for.
    void export_device_array(ArrowDeviceArray* out) const;
    // A stream with this one batch. Host memory only.
    void export_stream(ArrowArrayStream* out) const;

    [[nodiscard]] std::shared_ptr<Schema const> const& schema() const noexcept { return schema_; }
    [[nodiscard]] std::vector<Column> const& columns() const noexcept { return columns_; }
    [[nodiscard]] std::int64_t num_rows() const noexcept { return num_rows_; }
    [[nodiscard]] std::size_t num_columns() const noexcept { return columns_.size(); }
    [[nodiscard]] std::shared_ptr<void const> const& owner() const noexcept { return owner_; }
    [[nodiscard]] TablePlace place() const noexcept { return place_; }
    // On a GPU: the stream that the columns' bytes are ordered on.
    [[nodiscard]] Stream stream() const noexcept { return stream_; }
    // Bytes that the rows take when packed, as far as that is cheap to know (an estimate: lists by their offsets,
    // views with all bytes that they refer to).
    [[nodiscard]] std::size_t byte_size() const;

    // Rows [begin, begin + length). Throws std::out_of_range.
    [[nodiscard]] Table slice(std::int64_t begin, std::int64_t length) const;
    // Some of the columns, in this order. Throws std::out_of_range.
    [[nodiscard]] Table select(std::span<std::size_t const> columns) const;

  private:
    std::shared_ptr<Schema const> schema_;
    std::vector<Column> columns_;
    std::int64_t num_rows_;
    std::shared_ptr<void const> owner_;
    TablePlace place_;
    Stream stream_;
};

// The same rows in host memory that belongs to the result; waits for the GPU. What is in host memory already is shared.
// Throws OutOfMemory.
[[nodiscard]] Table copy_to_host(Table const& table);

}  // namespace rapidsmpf

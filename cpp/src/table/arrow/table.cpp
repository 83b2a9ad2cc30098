#include <rapidsmpf/table/table.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "table/gpu/device_table.hpp"
#include "table/host/bits.hpp"

namespace rapidsmpf {

namespace {

// Reads a producer's array, from the `first`-th of its rows on (its own offset not counted), into our form.
class Importer {
  public:
    [[nodiscard]] static Column column(
        Field const& field, ArrowArray const& array, std::int64_t first, std::int64_t length,
        std::string const& path, TablePlace place) {
        Importer const importer{field, array, path, place};
        return importer.read(first, length);
    }

  private:
    Importer(Field const& field, ArrowArray const& array, std::string const& path, TablePlace place)
        : field_{field}, array_{array}, path_{path}, place_{place} {}

    void expect(bool condition, std::string const& message) const {
        RAPIDSMPF_EXPECTS(
            condition, "column '" + path_ + "' (" + field_.type_name() + "): " + message,
            std::invalid_argument);
    }

    [[nodiscard]] void const* buffer(std::int64_t index, bool needed) const {
        auto const* const pointer = array_.buffers[index];
        expect(
            pointer != nullptr || !needed, "buffer " + std::to_string(index) + " of the Arrow array is null");
        return pointer;
    }

    [[nodiscard]] Column read(std::int64_t first, std::int64_t length) const {
        check_form(first, length);
        Column column;
        column.length = length;
        column.offset = array_.offset + first;
        if (field_.layout() == Layout::null) {
            column.offset = 0;
            column.null_count = length;
            return column;
        }
        read_validity(column, first);
        read_buffers(column);
        return column;
    }

    void check_form(std::int64_t first, std::int64_t length) const {
        expect(
            array_.length >= 0 && array_.offset >= 0 && first <= array_.length
                && length <= array_.length - first,
            "the Arrow array has " + std::to_string(array_.length) + " rows where "
                + std::to_string(first + length) + " are needed");
        expect(
            array_.n_children == static_cast<std::int64_t>(field_.children().size()),
            "the Arrow array has " + std::to_string(array_.n_children) + " children");
        expect(
            (array_.dictionary != nullptr) == (field_.dictionary() != nullptr),
            "the Arrow array must have a dictionary if and only if its schema has one");
        auto const buffers = array_.n_buffers;
        bool fits = false;
        switch (field_.layout()) {
            case Layout::null:
                fits = buffers == 0 || buffers == 1;  // Polars gives it one
                break;
            case Layout::bits:
            case Layout::fixed:
            case Layout::list32:
            case Layout::list64:
                fits = buffers == 2;
                break;
            case Layout::offsets32:
            case Layout::offsets64:
                fits = buffers == 3;
                break;
            case Layout::view:
                fits = buffers >= 3;
                break;
            case Layout::fixed_list:
            case Layout::structure:
                fits = buffers == 1;
                break;
        }
        expect(
            fits && (buffers == 0 || array_.buffers != nullptr),
            "the Arrow array has " + std::to_string(buffers) + " buffers");
    }

    void read_validity(Column& column, std::int64_t first) const {
        auto const* const bits = static_cast<std::uint8_t const*>(array_.buffers[0]);
        if (bits == nullptr || array_.null_count == 0 || column.length == 0) {
            return;
        }
        auto const is_whole = first == 0 && column.length == array_.length;
        if (place_ == TablePlace::gpu) {
            column.null_count = is_whole && array_.null_count > 0 ? array_.null_count : -1;
            column.validity = bits;
            return;
        }
        column.null_count = is_whole && array_.null_count > 0
                                ? array_.null_count
                                : column.length - detail::count_bits(bits, column.offset, column.length);
        column.validity = column.null_count == 0 ? nullptr : bits;
    }

    void read_buffers(Column& column) const {
        auto const has_rows = column.length > 0;
        auto const first = column.offset;
        switch (field_.layout()) {
            case Layout::null:
                break;
            case Layout::bits:
            case Layout::fixed:
                column.values = static_cast<std::byte const*>(
                    buffer(1, has_rows && (field_.layout() == Layout::bits || field_.width() > 0)));
                break;
            case Layout::offsets32:
                column.data = read_data<std::int32_t>(column);
                break;
            case Layout::offsets64:
                column.data = read_data<std::int64_t>(column);
                break;
            case Layout::view:
                read_views(column);
                break;
            case Layout::list32:
            case Layout::list64:
                column.offsets = buffer(1, has_rows);
                column.children.push_back(
                    child(0, 0, array_.n_children == 0 ? 0 : array_.children[0]->length));
                check_last_offset(column, column.children.front().length);
                break;
            case Layout::fixed_list:
                column.children.push_back(child(0, first * field_.width(), column.length * field_.width()));
                normalize_validity(column);
                break;
            case Layout::structure:
                for (std::int64_t i = 0; i < array_.n_children; ++i) {
                    column.children.push_back(child(i, first, column.length));
                }
                normalize_validity(column);
                break;
        }
        if (field_.dictionary() != nullptr) {
            column.dictionary = std::make_shared<Column const>(Importer::column(
                *field_.dictionary(), *array_.dictionary, 0, array_.dictionary->length, path_, place_));
        }
    }

    // The offset of what has no buffers besides its validity is left in the validity alone, less than a byte.
    static void normalize_validity(Column& column) {
        if (column.validity != nullptr) {
            column.validity += column.offset >> 3;
        }
        column.offset &= 7;
    }

    [[nodiscard]] Column child(std::int64_t index, std::int64_t first, std::int64_t length) const {
        auto const& field = field_.children()[static_cast<std::size_t>(index)];
        expect(
            array_.children != nullptr && array_.children[index] != nullptr,
            "a child of the Arrow array is null");
        return Importer::column(
            field, *array_.children[index], first, length, path_ + "." + field.name(), place_);
    }

    template <typename Offset>
    [[nodiscard]] std::span<std::byte const> read_data(Column& column) const {
        column.offsets = buffer(1, column.length > 0);
        if (column.length == 0) {
            return {};
        }
        if (place_ == TablePlace::gpu) {  // how many bytes there are only the GPU can read
            return {static_cast<std::byte const*>(buffer(2, false)), 0};
        }
        auto const* const offsets = static_cast<Offset const*>(column.offsets) + column.offset;
        auto const end = offsets[column.length];
        expect(offsets[0] >= 0 && end >= offsets[0], "its offsets are not ascending");
        return {static_cast<std::byte const*>(buffer(2, end > offsets[0])), static_cast<std::size_t>(end)};
    }

    void check_last_offset(Column const& column, std::int64_t rows) const {
        if (column.length == 0 || place_ == TablePlace::gpu) {
            return;
        }
        auto const last = column.offset + column.length;
        auto const end = field_.layout() == Layout::list32
                             ? static_cast<std::int32_t const*>(column.offsets)[last]
                             : static_cast<std::int64_t const*>(column.offsets)[last];
        expect(end >= 0 && end <= rows, "its last offset is beyond the end of its items");
    }

    void read_views(Column& column) const {
        column.values = static_cast<std::byte const*>(buffer(1, column.length > 0));
        auto const count = array_.n_buffers - 3;
        auto const* const sizes = static_cast<std::int64_t const*>(buffer(array_.n_buffers - 1, count > 0));
        for (std::int64_t i = 0; i < count; ++i) {
            expect(sizes[i] >= 0, "a data buffer has a negative size");
            column.variadic.emplace_back(
                static_cast<std::byte const*>(buffer(2 + i, sizes[i] > 0)),
                static_cast<std::size_t>(sizes[i]));
        }
    }

    Field const& field_;
    ArrowArray const& array_;
    std::string const& path_;
    TablePlace place_;
};

// The root of a record batch, whose columns are wanted.
std::vector<Column> import_columns(Schema const& schema, ArrowArray const& root, TablePlace place) {
    RAPIDSMPF_EXPECTS(
        root.n_children == static_cast<std::int64_t>(schema.num_columns()),
        "a record batch of " + std::to_string(root.n_children) + " columns does not fit its schema of "
            + std::to_string(schema.num_columns()),
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        root.length >= 0 && root.offset >= 0 && (root.n_buffers == 1 || root.n_buffers == 0),
        "the record batch is not a struct array", std::invalid_argument);
    auto const* const validity =
        root.n_buffers == 0 ? nullptr : static_cast<std::uint8_t const*>(root.buffers[0]);
    RAPIDSMPF_EXPECTS(
        validity == nullptr || root.null_count == 0
            || (place == TablePlace::host
                && detail::count_bits(validity, root.offset, root.length) == root.length),
        "a table must not have null rows at its top; is it a struct column?", std::invalid_argument);
    std::vector<Column> columns;
    for (std::int64_t i = 0; i < root.n_children; ++i) {
        auto const& field = schema.fields()[static_cast<std::size_t>(i)];
        columns.push_back(
            Importer::column(field, *root.children[i], root.offset, root.length, field.name(), place));
    }
    return columns;
}

Column slice_column(
    Field const& field, Column const& column, std::int64_t begin, std::int64_t length, TablePlace place) {
    auto sliced = column;
    sliced.length = length;
    sliced.offset += begin;
    if (field.layout() == Layout::null) {
        sliced.offset = 0;
        sliced.null_count = length;
        return sliced;
    }
    if (column.validity != nullptr && place == TablePlace::gpu) {
        sliced.null_count = -1;
    } else if (column.validity != nullptr) {
        sliced.null_count = length - detail::count_bits(column.validity, sliced.offset, length);
        if (sliced.null_count == 0) {
            sliced.validity = nullptr;
        }
    }
    if (field.layout() == Layout::structure || field.layout() == Layout::fixed_list) {
        if (sliced.validity != nullptr) {
            sliced.validity += sliced.offset >> 3;
        }
        sliced.offset &= 7;
        auto const scale = field.layout() == Layout::structure ? 1 : field.width();
        for (std::size_t i = 0; i < sliced.children.size(); ++i) {
            sliced.children[i] =
                slice_column(field.children()[i], column.children[i], begin * scale, length * scale, place);
        }
    }
    return sliced;
}

template <typename Offset>
std::pair<std::int64_t, std::int64_t> offset_range(Column const& column) {
    if (column.length == 0) {
        return {0, 0};
    }
    auto const* const offsets = static_cast<Offset const*>(column.offsets) + column.offset;
    return {offsets[0], offsets[column.length]};
}

// On a GPU the whole of a column's texts and items, for where a slice of them ends is not known.
std::size_t column_bytes(Field const& field, Column const& column, std::int64_t rows, TablePlace place) {
    auto const count = static_cast<std::size_t>(rows);
    auto bytes = column.validity == nullptr ? 0 : count / 8;
    switch (field.layout()) {
        case Layout::null:
            break;
        case Layout::bits:
            bytes += count / 8;
            break;
        case Layout::fixed:
            bytes += count * static_cast<std::size_t>(field.width());
            break;
        case Layout::offsets32:
        case Layout::offsets64: {
            if (place == TablePlace::gpu) {
                bytes += count * (field.layout() == Layout::offsets32 ? 4 : 8) + column.data.size();
                break;
            }
            auto const [begin, end] = field.layout() == Layout::offsets32
                                          ? offset_range<std::int32_t>(column)
                                          : offset_range<std::int64_t>(column);
            bytes +=
                count * (field.layout() == Layout::offsets32 ? 4 : 8) + static_cast<std::size_t>(end - begin);
            break;
        }
        case Layout::view:
            bytes += count * 16;
            if (!column.variadic.empty()) {
                auto const* const views = column.values + column.offset * 16;
                for (std::int64_t i = 0; i < rows; ++i) {
                    std::uint32_t size;
                    std::memcpy(&size, views + i * 16, sizeof size);
                    bytes += size > 12 && column.is_valid(i) ? size : 0;
                }
            }
            break;
        case Layout::list32:
        case Layout::list64: {
            if (place == TablePlace::gpu) {
                auto const& items = column.children[0];
                bytes += count * (field.layout() == Layout::list32 ? 4 : 8)
                         + column_bytes(field.children()[0], items, items.length, place);
                break;
            }
            auto const [begin, end] = field.layout() == Layout::list32 ? offset_range<std::int32_t>(column)
                                                                       : offset_range<std::int64_t>(column);
            bytes += count * (field.layout() == Layout::list32 ? 4 : 8);
            auto const items =
                slice_column(field.children()[0], column.children[0], begin, end - begin, TablePlace::host);
            bytes += column_bytes(field.children()[0], items, end - begin, place);
            break;
        }
        case Layout::fixed_list:
            bytes += column_bytes(field.children()[0], column.children[0], rows * field.width(), place);
            break;
        case Layout::structure:
            for (std::size_t i = 0; i < column.children.size(); ++i) {
                bytes += column_bytes(field.children()[i], column.children[i], rows, place);
            }
            break;
    }
    if (column.dictionary) {
        bytes += column_bytes(*field.dictionary(), *column.dictionary, column.dictionary->length, place);
    }
    return bytes;
}

Column empty_column(Field const& field) {
    Column column;
    for (auto const& child : field.children()) {
        column.children.push_back(empty_column(child));
    }
    if (field.dictionary() != nullptr) {
        column.dictionary = std::make_shared<Column const>(empty_column(*field.dictionary()));
    }
    return column;
}

}  // namespace

Table::Table(
    std::shared_ptr<Schema const> schema, std::vector<Column> columns, std::int64_t num_rows,
    std::shared_ptr<void const> owner, TablePlace place, Stream stream)
    : schema_{std::move(schema)},
      columns_{std::move(columns)},
      num_rows_{num_rows},
      owner_{std::move(owner)},
      place_{place},
      stream_{stream} {
    RAPIDSMPF_EXPECTS(schema_ != nullptr, "a table needs a schema", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        schema_->num_columns() == columns_.size(),
        "a table of " + std::to_string(columns_.size()) + " columns does not fit a schema of "
            + std::to_string(schema_->num_columns()),
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        std::all_of(
            columns_.begin(), columns_.end(), [&](auto const& column) { return column.length == num_rows; }),
        "the columns of a table must all have as many rows as the table", std::invalid_argument);
}

Table Table::empty(std::shared_ptr<Schema const> schema) {
    std::vector<Column> columns;
    for (auto const& field : schema->fields()) {
        columns.push_back(empty_column(field));
    }
    return Table{std::move(schema), std::move(columns), 0, nullptr};
}

Table Table::import_arrow(std::shared_ptr<Schema const> schema, ArrowArray* array) {
    auto const owner = std::make_shared<ArrowArrayOwner>(array);
    RAPIDSMPF_EXPECTS(static_cast<bool>(*owner), "the Arrow array has been released", std::invalid_argument);
    auto const& root = *owner->get();
    auto columns = import_columns(*schema, root, TablePlace::host);
    return Table{std::move(schema), std::move(columns), root.length, owner};
}

Table Table::import_arrow(ArrowSchema* schema, ArrowArray* array) {
    ArrowSchemaOwner const schema_owner{schema};
    ArrowArrayOwner array_owner{array};
    return import_arrow(Schema::from_arrow(*schema_owner.get()), array_owner.get());
}

Table Table::import_device_array(
    std::shared_ptr<Schema const> schema, ArrowDeviceArray* array, Stream stream) {
    auto const type = array->device_type;
    if (type == ARROW_DEVICE_CPU) {
        return import_arrow(std::move(schema), &array->array);
    }
    auto const owner = std::make_shared<ArrowArrayOwner>(&array->array);
    RAPIDSMPF_EXPECTS(static_cast<bool>(*owner), "the Arrow array has been released", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        type == ARROW_DEVICE_CUDA || type == ARROW_DEVICE_CUDA_MANAGED || type == ARROW_DEVICE_CUDA_HOST,
        "an Arrow array on a device of type " + std::to_string(type)
            + " cannot be read here; only those of the CPU and of CUDA can",
        std::invalid_argument);
    detail::wait_for_producer(*array, stream);
    auto columns = import_columns(*schema, *owner->get(), TablePlace::gpu);
    auto const rows = owner->get()->length;
    return Table{std::move(schema), std::move(columns), rows, owner, TablePlace::gpu, stream};
}

std::size_t Table::byte_size() const {
    std::size_t bytes{0};
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        bytes += column_bytes(schema_->fields()[i], columns_[i], num_rows_, place_);
    }
    return bytes;
}

Table Table::slice(std::int64_t begin, std::int64_t length) const {
    RAPIDSMPF_EXPECTS(
        begin >= 0 && length >= 0 && begin <= num_rows_ && length <= num_rows_ - begin,
        "rows [" + std::to_string(begin) + ", " + std::to_string(begin) + " + " + std::to_string(length)
            + ") are not in a table of " + std::to_string(num_rows_) + " rows",
        std::out_of_range);
    std::vector<Column> columns;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        columns.push_back(slice_column(schema_->fields()[i], columns_[i], begin, length, place_));
    }
    return Table{schema_, std::move(columns), length, owner_, place_, stream_};
}

Table Table::select(std::span<std::size_t const> indices) const {
    std::vector<Field> fields;
    std::vector<Column> columns;
    for (auto const index : indices) {
        RAPIDSMPF_EXPECTS(
            index < columns_.size(),
            "there is no column number " + std::to_string(index) + " in a table of "
                + std::to_string(columns_.size()) + " columns",
            std::out_of_range);
        fields.push_back(schema_->fields()[index]);
        columns.push_back(columns_[index]);
    }
    return Table{
        std::make_shared<Schema const>(std::move(fields), schema_->metadata(), schema_->form()),
        std::move(columns),
        num_rows_,
        owner_,
        place_,
        stream_};
}

}  // namespace rapidsmpf

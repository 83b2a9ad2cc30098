#include "table/narrow/widen_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <rapidsmpf/table/partition.hpp>

#include "table/host/bits.hpp"
#include "table/host/pack_plan.hpp"
#include "table/host/scatter.hpp"
#include "table/narrow/narrow_values.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

// Bytes of the texts that are too long for a view.
std::int64_t bytes_behind_views(Field const& field, Column const& column) {
    std::int64_t bytes = 0;
    if (field.layout() == Layout::view) {
        for (std::int64_t row = 0; row < column.length; ++row) {
            auto const size = column.is_valid(row) ? load_view(column, row).size : 0;
            bytes += size > View::max_inline ? size : 0;
        }
        return bytes;
    }
    auto const* const offsets = static_cast<std::int32_t const*>(column.offsets) + column.offset;
    for (std::int64_t row = 0; row < column.length; ++row) {
        auto const size = offsets[row + 1] - offsets[row];
        bytes += size > static_cast<std::int32_t>(View::max_inline) ? size : 0;
    }
    return bytes;
}

// A view that holds its text; `left`: bytes that may be read from `text` on.
View short_view(std::byte const* text, std::uint32_t size, std::size_t left) noexcept {
    std::array<std::byte, sizeof(View)> bytes{};
    std::memcpy(bytes.data(), &size, sizeof size);
    if (left >= View::max_inline) {
        // Twelve bytes, and zeros over those that are not its own.
        std::uint64_t head = load<std::uint64_t>(text, 0);
        std::uint32_t tail = load<std::uint32_t>(text + 8, 0);
        head &= size >= 8 ? ~std::uint64_t{0} : low_bits(size * 8);
        tail &= size <= 8 ? 0U : static_cast<std::uint32_t>(low_bits((size - 8) * 8));
        std::memcpy(bytes.data() + 4, &head, sizeof head);
        std::memcpy(bytes.data() + 12, &tail, sizeof tail);
    } else {
        std::memcpy(bytes.data() + 4, text, size);
    }
    View view;
    std::memcpy(&view, bytes.data(), sizeof view);
    return view;
}

// Appends the texts of a narrow column as views.
void append_texts(ColumnWriter& writer, Column const& column) {
    auto const* const offsets = static_cast<std::int32_t const*>(column.offsets) + column.offset;
    auto const* const data = column.data.data();
    for (std::int64_t row = 0; row < column.length; ++row) {
        auto const begin = offsets[row];
        auto const size = static_cast<std::uint32_t>(offsets[row + 1] - begin);
        auto const* const text = data + begin;
        View view{};
        if (size <= View::max_inline) {
            view = short_view(text, size, column.data.size() - static_cast<std::size_t>(begin));
        } else {
            make_room(writer, size, max_view_segment);
            copy_text(writer.data + writer.byte, text, size);
            view.size = size;
            std::memcpy(&view.prefix, text, sizeof view.prefix);
            view.buffer = static_cast<std::uint32_t>(writer.segment_ends.size());
            view.offset = static_cast<std::uint32_t>(writer.byte - writer.segment_begin);
            writer.byte += size;
        }
        store(writer.values, writer.row + row, view);
    }
}

// The columns of which at least one table has another form than `wide` says.
class WideWriter {
  public:
    WideWriter(
        Schema const& wide, std::span<std::optional<Table> const> tables, std::vector<std::size_t> columns,
        std::int64_t rows, BufferResource& br, AllowOverbooking allow)
        : wide_{wide}, columns_{std::move(columns)}, rows_{rows}, writers_(columns_.size()) {
        struct Places {
            std::size_t validity;
            std::size_t values;
            std::size_t data;
        };
        std::vector<Places> places;
        std::size_t size = 0;
        auto const put = [&](std::int64_t bytes) { return std::exchange(size, size + padded_size(bytes)); };
        for (auto const at : columns_) {
            auto const& field = wide.fields()[at];
            std::int64_t nulls = 0;
            std::int64_t bytes = 0;
            for (auto const& table : tables) {
                auto const& column = table->columns()[at];
                nulls += column.null_count;
                if (field.layout() == Layout::view) {
                    bytes += bytes_behind_views(table->schema()->fields()[at], column);
                }
            }
            has_nulls_.push_back(nulls > 0);
            auto const bitmap = put(nulls > 0 ? bytes_for_bits(rows) : 0);
            auto const values = put(values_bytes(field, rows));
            places.push_back({bitmap, values, put(bytes)});
        }
        buffer_ = std::move(allocate_parts(std::array{size}, {}, br, allow).front());
        auto* const base = buffer_->mutable_host_bytes().data();
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            writers_[i].validity = base + places[i].validity;
            writers_[i].values = base + places[i].values;
            writers_[i].data = base + places[i].data;
        }
    }

    void append(Table const& table) {
        RowRange const rows{0, table.num_rows()};
        RangeRun const run{&rows, 1};
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            auto const& field = wide_.fields()[columns_[i]];
            auto const& its_field = table.schema()->fields()[columns_[i]];
            auto const& column = table.columns()[columns_[i]];
            auto& writer = writers_[i];
            if (has_nulls_[i]) {
                append_validity(writer, column, run);
            }
            if (field.layout() == Layout::fixed) {
                convert_numbers(
                    writer.values + writer.row * field.width(), field.width(),
                    column.values + column.offset * its_field.width(), its_field.width(), column.length);
            } else if (its_field.layout() == Layout::view) {
                append_views(writer, column, run, max_view_segment);
            } else {
                append_texts(writer, column);
            }
            writer.row += table.num_rows();
        }
    }

    // Column number `i` of those that were asked for.
    [[nodiscard]] Column column(std::size_t i) {
        auto& writer = writers_[i];
        Column column;
        column.length = rows_;
        column.null_count = writer.nulls;
        column.validity = writer.nulls > 0 ? reinterpret_cast<std::uint8_t const*>(writer.validity) : nullptr;
        column.values = writer.values;
        if (writer.byte > writer.segment_begin) {
            writer.segment_ends.push_back(writer.byte);
        }
        std::int64_t begin = 0;
        for (auto const end : writer.segment_ends) {
            column.variadic.emplace_back(writer.data + begin, static_cast<std::size_t>(end - begin));
            begin = end;
        }
        return column;
    }
    [[nodiscard]] std::shared_ptr<Buffer> take_buffer() noexcept { return std::move(buffer_); }

  private:
    Schema const& wide_;
    std::vector<std::size_t> columns_;
    std::int64_t rows_;
    std::vector<bool> has_nulls_;
    std::vector<ColumnWriter> writers_;
    std::shared_ptr<Buffer> buffer_;
};

}  // namespace

Table widen_and_concat(
    std::shared_ptr<Schema const> wide, std::vector<std::optional<Table>> tables, BufferResource& br,
    AllowOverbooking allow) {
    std::vector<std::size_t> changed;
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < wide->num_columns(); ++i) {
        bool const is_kept = std::ranges::all_of(tables, [&](std::optional<Table> const& table) {
            return table->schema()->fields()[i].format() == wide->fields()[i].format();
        });
        (is_kept ? kept : changed).push_back(i);
    }
    std::int64_t rows = 0;
    std::vector<Table> selected;
    selected.reserve(tables.size());
    for (auto const& table : tables) {
        rows += table->num_rows();
        selected.push_back(table->select(kept));
    }
    struct Owner {
        Table kept;
        std::shared_ptr<Buffer> buffer;
    };
    auto const owner = std::make_shared<Owner>(Owner{concat(selected, br, allow), nullptr});
    selected.clear();
    WideWriter writer{*wide, tables, changed, rows, br, allow};
    for (auto& table : tables) {
        writer.append(*table);
        table.reset();
    }
    owner->buffer = writer.take_buffer();
    std::vector<Column> columns(wide->num_columns());
    for (std::size_t i = 0; i < kept.size(); ++i) {
        columns[kept[i]] = owner->kept.columns()[i];
    }
    for (std::size_t i = 0; i < changed.size(); ++i) {
        columns[changed[i]] = writer.column(i);
    }
    return Table{std::move(wide), std::move(columns), rows, owner};
}

}  // namespace rapidsmpf::detail

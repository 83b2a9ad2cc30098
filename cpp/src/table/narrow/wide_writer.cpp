#include "table/narrow/wide_writer.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "table/host/bits.hpp"
#include "table/host/column_access.hpp"
#include "table/host/column_counts.hpp"
#include "table/host/pack_plan.hpp"
#include "table/narrow/narrow_values.hpp"
#include "table/packed/packed_layout.hpp"

namespace rapidsmpf::detail {

namespace {

// Bytes of the texts that are too long for a view.
std::int64_t bytes_behind_views(Field const& field, Column const& column) {
    if (field.layout() == Layout::view) {
        RowRange const rows{0, column.length};
        return count_viewed(column, RangeRun{&rows, 1});
    }
    std::int64_t bytes = 0;
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

}  // namespace

WideWriter::WideWriter(
    Schema const& wide, std::span<std::optional<Table> const> tables, std::vector<std::size_t> columns,
    std::int64_t rows)
    : wide_{wide}, columns_{std::move(columns)}, rows_{rows}, writers_(columns_.size()) {
    auto const put = [&](std::int64_t bytes) { return std::exchange(size_, size_ + padded_size(bytes)); };
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
        auto const validity = put(nulls > 0 ? bytes_for_bits(rows) : 0);
        auto const values = put(values_bytes(field, rows));
        places_.push_back({validity, values, put(bytes)});
    }
}

void WideWriter::place(std::byte* base) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        writers_[i].validity = base + places_[i].validity;
        writers_[i].values = base + places_[i].values;
        writers_[i].data = base + places_[i].data;
    }
}

void WideWriter::append(Table const& table) {
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

Column WideWriter::column(std::size_t i) {
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

}  // namespace rapidsmpf::detail

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/table/detail/narrow.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "table/host/bits.hpp"
#include "table/host/column_access.hpp"
#include "table/host/scatter.hpp"
#include "table/narrow/narrow_types.hpp"
#include "table/narrow/narrow_values.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf {

namespace {

// Texts of one column that take more than this together stay views: their offsets are 32-bit ones.
constexpr std::int64_t most_text = std::int64_t{1} << 30;
// What is saved must be at least this part of a row.
constexpr std::int64_t least_saved = 8;

// What a column becomes.
struct Narrowing {
    detail::NarrowKind kind{detail::NarrowKind::none};
    std::int64_t width{0};   // of the numbers
    std::int64_t bytes{0};   // of text
    std::int64_t growth{0};  // of a row, when it is widened
};

enum class RowsToCount : std::uint8_t { all, valid };

template <typename T>
void add_numbers(
    detail::Magnitude& magnitude, Column const& column, detail::NarrowKind kind, RowsToCount rows) noexcept {
    detail::Magnitude its;  // which the compiler can keep in registers
    auto const for_each = [&](auto const& add) {
        auto const* const values = column.values + column.offset * static_cast<std::int64_t>(sizeof(T));
        if (rows == RowsToCount::all) {
            for (std::int64_t row = 0; row < column.length; ++row) {
                add(detail::load<T>(values, row));
            }
            return;
        }
        for (std::int64_t row = 0; row < column.length; ++row) {
            if (column.is_valid(row)) {
                add(detail::load<T>(values, row));
            }
        }
    };
    if (kind == detail::NarrowKind::unsigned_integer) {
        for_each([&](T value) { its.bits |= detail::to_unsigned(value); });
    } else {
        for_each([&](T value) { its.add_signed(value); });
    }
    magnitude.bits |= its.bits;
    magnitude.above |= its.above;
}

std::int64_t width_of(
    std::span<Table const> tables, std::size_t at, Field const& field, detail::NarrowKind kind,
    RowsToCount rows) {
    detail::Magnitude magnitude;
    for (auto const& table : tables) {
        detail::with_signed_type(field.width(), [&]<typename T>(T) {
            add_numbers<T>(magnitude, table.columns()[at], kind, rows);
        });
    }
    return magnitude.width();
}

Narrowing narrow_numbers(
    std::span<Table const> tables, std::size_t at, Field const& field, detail::NarrowKind kind) {
    auto width = width_of(tables, at, field, kind, RowsToCount::all);
    bool const has_nulls =
        std::ranges::any_of(tables, [at](Table const& t) { return t.columns()[at].validity != nullptr; });
    if (width >= field.width() && has_nulls) {
        width = width_of(tables, at, field, kind, RowsToCount::valid);  // what null rows hold does not matter
    }
    if (width >= field.width()) {
        return {};
    }
    return {kind, width, 0, field.width() - width};
}

Narrowing narrow_texts(std::span<Table const> tables, std::size_t at, std::int64_t rows) {
    std::int64_t text = 0;
    std::int64_t behind_views = 0;
    std::int64_t buffers = 0;
    for (auto const& table : tables) {
        auto const& column = table.columns()[at];
        for (std::int64_t row = 0; row < column.length; ++row) {
            if (column.is_valid(row)) {
                auto const size = std::int64_t{detail::load_view(column, row).size};
                text += size;
                behind_views += size > detail::View::max_inline ? size : 0;
            }
        }
        for (auto const& buffer : column.variadic) {
            buffers += static_cast<std::int64_t>(buffer.size());
        }
    }
    if (text > most_text || behind_views > buffers
        || rows == 0) {  // views that share texts are shorter than these
        return {};
    }
    constexpr std::int64_t view = sizeof(detail::View);
    constexpr std::int64_t offset = sizeof(std::int32_t);
    auto const growth = view - offset - (text - behind_views) / rows;
    // In steps, so that the tables of one source have one schema.
    return {detail::NarrowKind::text, 0, text, growth / 4 * 4};
}

std::vector<Narrowing> plan(std::span<Table const> tables, std::int64_t rows) {
    auto const& fields = tables.front().schema()->fields();
    std::vector<Narrowing> columns(fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i) {
        auto const kind = detail::narrow_kind(fields[i]);
        if (kind == detail::NarrowKind::text) {
            columns[i] = narrow_texts(tables, i, rows);
        } else if (kind != detail::NarrowKind::none) {
            columns[i] = narrow_numbers(tables, i, fields[i], kind);
        }
    }
    return columns;
}

bool has_nulls(std::span<Table const> tables, std::size_t at) {
    return std::ranges::any_of(tables, [at](Table const& t) { return t.columns()[at].null_count != 0; });
}

// Writes the columns that become narrow into one buffer.
class NarrowWriter {
  public:
    NarrowWriter(
        std::span<Table const> tables, std::vector<Narrowing> const& plan, std::int64_t rows,
        BufferResource& br)
        : tables_{tables}, plan_{plan}, rows_{rows} {
        std::vector<Places> places(plan.size());
        std::size_t size = 0;
        auto const put = [&](std::int64_t bytes) {
            return std::exchange(size, size + detail::padded_size(bytes));
        };
        for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].kind == detail::NarrowKind::none) {
                continue;
            }
            auto const is_text = plan[i].kind == detail::NarrowKind::text;
            places[i].has_validity = has_nulls(tables, i);
            places[i].validity = put(places[i].has_validity ? detail::bytes_for_bits(rows) : 0);
            places[i].values = put(is_text ? (rows + 1) * 4 : rows * plan[i].width);
            places[i].data = put(plan[i].bytes);
        }
        buffer_ = std::move(detail::allocate_parts(std::array{size}, {}, br, AllowOverbooking::yes).front());
        auto* const base = buffer_->mutable_host_bytes().data();
        for (std::size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].kind != detail::NarrowKind::none) {
                columns_.push_back(write(i, base, places[i]));
            }
        }
    }

    // In the order of the plan.
    [[nodiscard]] std::vector<Column> take_columns() noexcept { return std::move(columns_); }
    [[nodiscard]] std::shared_ptr<Buffer> take_buffer() noexcept { return std::move(buffer_); }

  private:
    struct Places {
        bool has_validity{false};
        std::size_t validity{0};
        std::size_t values{0};
        std::size_t data{0};
    };

    [[nodiscard]] Column write(std::size_t at, std::byte* base, Places const& places) const {
        Column column;
        column.length = rows_;
        if (places.has_validity) {
            column.validity = reinterpret_cast<std::uint8_t const*>(base + places.validity);
            column.null_count = write_validity(at, base + places.validity);
        }
        if (plan_[at].kind == detail::NarrowKind::text) {
            column.offsets = base + places.values;
            column.data = {base + places.data, static_cast<std::size_t>(plan_[at].bytes)};
            write_texts(at, base + places.values, base + places.data);
        } else {
            column.values = base + places.values;
            write_numbers(at, base + places.values);
        }
        return column;
    }

    [[nodiscard]] std::int64_t write_validity(std::size_t at, std::byte* to) const {
        detail::ColumnWriter writer;
        writer.validity = to;
        for (auto const& table : tables_) {
            RowRange const rows{0, table.num_rows()};
            detail::append_validity(writer, table.columns()[at], detail::RangeRun{&rows, 1});
            writer.row += table.num_rows();
        }
        return writer.nulls;
    }

    void write_numbers(std::size_t at, std::byte* to) const {
        auto const from_width = tables_.front().schema()->fields()[at].width();
        auto const width = plan_[at].width;
        for (auto const& table : tables_) {
            auto const& column = table.columns()[at];
            detail::convert_numbers(
                to, width, column.values + column.offset * from_width, from_width, column.length);
            to += column.length * width;
        }
    }

    void write_texts(std::size_t at, std::byte* offsets, std::byte* data) const {
        std::int64_t row = 0;
        std::int32_t end = 0;
        detail::store(offsets, row++, end);
        for (auto const& table : tables_) {
            auto const& column = table.columns()[at];
            for (std::int64_t i = 0; i < column.length; ++i) {
                if (column.is_valid(i)) {
                    auto const view = detail::load_view(column, i);
                    auto const* const text =
                        view.size <= detail::View::max_inline
                            ? column.values + (column.offset + i) * static_cast<std::int64_t>(sizeof(view))
                                  + 4
                            : column.variadic[view.buffer].data() + view.offset;
                    detail::copy_text(data + end, text, view.size);
                    end += static_cast<std::int32_t>(view.size);
                }
                detail::store(offsets, row++, end);
            }
        }
    }

    using RowRange = detail::RowRange;
    std::span<Table const> tables_;
    std::vector<Narrowing> const& plan_;
    std::int64_t rows_;
    std::shared_ptr<Buffer> buffer_;
    std::vector<Column> columns_;
};

// The columns that stay as they are, of all tables.
Table kept_columns(std::span<Table const> tables, std::vector<Narrowing> const& plan, BufferResource& br) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < plan.size(); ++i) {
        if (plan[i].kind == detail::NarrowKind::none) {
            kept.push_back(i);
        }
    }
    std::vector<Table> selected;
    selected.reserve(tables.size());
    for (auto const& table : tables) {
        selected.push_back(table.select(kept));
    }
    return concat(selected, br, AllowOverbooking::yes);
}

}  // namespace

Table narrow(std::span<Table const> tables, BufferResource& br) {
    std::int64_t rows = 0;
    std::size_t bytes = 0;
    bool is_plain = !tables.empty();
    for (auto const& table : tables) {
        rows += table.num_rows();
        bytes += table.byte_size();
        // One schema, whose fields are not marked: those of the first table speak for all.
        is_plain &= table.place() == TablePlace::host && !table.schema()->is_narrow()
                    && difference(*tables.front().schema(), *table.schema()).empty();
    }
    auto const& schema = tables.empty() ? nullptr : tables.front().schema();
    is_plain &= schema != nullptr && std::ranges::none_of(schema->fields(), [](Field const& field) {
                    return detail::is_marked(field);
                });
    auto const as_they_are = [&] {
        return tables.size() == 1 ? tables.front() : concat(tables, br, AllowOverbooking::yes);
    };
    if (!is_plain || rows == 0) {
        return as_they_are();
    }
    auto const columns = plan(tables, rows);
    std::int64_t growth = 0;
    for (auto const& column : columns) {
        growth += column.growth;
    }
    if (growth * least_saved < static_cast<std::int64_t>(bytes) / rows || growth == 0) {
        return as_they_are();
    }
    struct Owner {
        Table kept;
        std::shared_ptr<Buffer> buffer;
    };
    NarrowWriter writer{tables, columns, rows, br};
    auto owner = std::make_shared<Owner>(Owner{kept_columns(tables, columns, br), writer.take_buffer()});
    auto narrowed = writer.take_columns();
    std::vector<Field> fields;
    std::vector<Column> result;
    std::size_t next_kept = 0;
    std::size_t next_narrowed = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        auto const& field = schema->fields()[i];
        if (columns[i].kind == detail::NarrowKind::none) {
            fields.push_back(field);
            result.push_back(owner->kept.columns()[next_kept++]);
        } else {
            fields.push_back(detail::narrow_field(field, columns[i].width, columns[i].growth));
            result.push_back(std::move(narrowed[next_narrowed++]));
        }
    }
    return Table{
        std::make_shared<Schema const>(std::move(fields), schema->metadata(), RowForm::narrow),
        std::move(result), rows, std::move(owner)};
}

}  // namespace rapidsmpf

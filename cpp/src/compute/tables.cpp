#include "compute/tables.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <cudf/column/column_factories.hpp>
#include <cudf/concatenate.hpp>
#include <cudf/lists/lists_column_view.hpp>
#include <cudf/null_mask.hpp>
#include <cudf/replace.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/scalar/scalar_factories.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/traits.hpp>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::compute {

namespace {

// One call concatenates tables of fewer rows; column by column takes more calls.
constexpr std::int64_t rows_by_table = 10'000'000;

}  // namespace

cudf::data_type to_cudf(DataType const& type) {
    auto const id = static_cast<cudf::type_id>(type.id);
    auto const decimal =
        id == cudf::type_id::DECIMAL32 || id == cudf::type_id::DECIMAL64 || id == cudf::type_id::DECIMAL128;
    return decimal ? cudf::data_type{id, type.scale} : cudf::data_type{id};
}

ColumnPtr empty_column(cudf::data_type type) {
    switch (type.id()) {
        case cudf::type_id::LIST:
            return cudf::make_empty_lists_column(cudf::data_type{cudf::type_id::INT8});
        case cudf::type_id::STRUCT:
            return cudf::make_structs_column(0, {}, 0, {});
        default:
            return cudf::make_empty_column(type);
    }
}

TablePtr empty_table(std::span<DataType const> types) {
    std::vector<ColumnPtr> columns;
    for (auto const& type : types) {
        columns.push_back(empty_column(to_cudf(type)));
    }
    return std::make_unique<cudf::table>(std::move(columns));
}

ColumnPtr null_column(cudf::data_type type, cudf::size_type rows, Work& work) {
    if (cudf::is_nested(type)) {
        return null_column(empty_column(type)->view(), rows, work);
    }
    auto const scalar = cudf::make_default_constructed_scalar(type, work.stream(), work.mr());
    scalar->set_valid_async(false, work.stream());
    return cudf::make_column_from_scalar(*scalar, rows, work.stream(), work.mr());
}

ColumnPtr null_column(cudf::column_view const& like, cudf::size_type rows, Work& work) {
    if (!cudf::is_nested(like.type())) {
        return null_column(like.type(), rows, work);
    }
    if (rows == 0) {
        return cudf::empty_like(like);
    }
    auto nulls = cudf::create_null_mask(rows, cudf::mask_state::ALL_NULL, work.stream(), work.mr());
    if (like.type().id() == cudf::type_id::LIST) {
        cudf::numeric_scalar<cudf::size_type> const zero{0, true, work.stream(), work.mr()};
        return cudf::make_lists_column(
            rows, cudf::make_column_from_scalar(zero, rows + 1, work.stream(), work.mr()),
            cudf::empty_like(cudf::lists_column_view{like}.child()), rows, std::move(nulls));
    }
    std::vector<ColumnPtr> fields;
    for (cudf::size_type i = 0; i < like.num_children(); ++i) {
        fields.push_back(null_column(like.child(i), rows, work));
    }
    return cudf::make_structs_column(
        rows, std::move(fields), rows, std::move(nulls), work.stream(), work.mr());
}

ColumnPtr adopt(ColumnPtr column, cuda::stream_ref stream) {
    auto const type = column->type();
    auto const size = column->size();
    auto const nulls = column->null_count();
    auto contents = column->release();
    contents.data->set_stream(stream);
    contents.null_mask->set_stream(stream);
    for (auto& child : contents.children) {
        child = adopt(std::move(child), stream);
    }
    return std::make_unique<cudf::column>(
        type, size, std::move(*contents.data), std::move(*contents.null_mask), nulls,
        std::move(contents.children));
}

TablePtr adopt(TablePtr table, cuda::stream_ref stream) {
    auto const rows = table->num_rows();
    auto columns = table->release();
    for (auto& column : columns) {
        column = adopt(std::move(column), stream);
    }
    return std::make_unique<cudf::table>(std::move(columns), rows);
}

TablePtr concatenate(std::vector<TablePtr> tables, char const* what, Work& work) {
    if (tables.size() > 1) {
        // Those without rows give nothing but work; one is left for its types.
        auto const empty = [](TablePtr const& table) { return table->num_rows() == 0; };
        auto const begin = tables.begin() + (std::all_of(tables.begin(), tables.end(), empty) ? 1 : 0);
        tables.erase(std::remove_if(begin, tables.end(), empty), tables.end());
    }
    if (tables.size() == 1) {
        return adopt(std::move(tables.front()), work.stream());
    }
    std::int64_t rows{0};
    for (auto const& table : tables) {
        rows += table->num_rows();
    }
    RAPIDSMPF_EXPECTS(
        rows <= most_rows,
        std::string{what} + " has " + std::to_string(rows) + " rows, more than one table on the GPU can hold",
        std::length_error);
    if (rows < rows_by_table) {
        std::vector<cudf::table_view> views;
        for (auto const& table : tables) {
            views.push_back(table->view());
        }
        auto result = cudf::concatenate(views, work.stream(), work.mr());
        work.synchronize();
        return result;
    }
    // Column by column, so that there never is a second copy of all.
    std::vector<std::vector<ColumnPtr>> parts;
    for (auto& table : tables) {
        parts.push_back(table->release());
    }
    std::vector<ColumnPtr> columns;
    for (std::size_t column = 0; column < parts.front().size(); ++column) {
        std::vector<cudf::column_view> views;
        for (auto const& part : parts) {
            views.push_back(part[column]->view());
        }
        columns.push_back(cudf::concatenate(views, work.stream(), work.mr()));
        work.synchronize();
        for (auto& part : parts) {
            part[column].reset();
        }
    }
    return std::make_unique<cudf::table>(std::move(columns), static_cast<cudf::size_type>(rows));
}

cudf::table_view select(cudf::table_view const& table, std::span<std::int32_t const> columns) {
    std::vector<cudf::column_view> views;
    views.reserve(columns.size());
    for (auto const column : columns) {
        views.push_back(table.column(column));
    }
    return cudf::table_view{views};
}

TablePtr keep_columns(TablePtr table, std::span<std::int32_t const> columns) {
    auto const rows = table->num_rows();
    auto all = table->release();
    std::vector<ColumnPtr> kept;
    kept.reserve(columns.size());
    for (auto const column : columns) {
        kept.push_back(std::move(all.at(static_cast<std::size_t>(column))));
    }
    return std::make_unique<cudf::table>(std::move(kept), rows);
}

TablePtr copy_rows(cudf::table_view const& table, std::int64_t begin, std::int64_t length, Work& work) {
    auto const from = static_cast<cudf::size_type>(begin);
    auto const to = static_cast<cudf::size_type>(begin + length);
    auto const part = cudf::slice(table, {from, to}, work.stream());
    return std::make_unique<cudf::table>(part.front(), work.stream(), work.mr());
}

cudf::column_view as_column(RowMap const& map) {
    return cudf::column_view{
        cudf::data_type{cudf::type_id::INT32}, static_cast<cudf::size_type>(map.size()), map.data(), nullptr,
        0};
}

TablePtr gather_rows(
    cudf::table_view const& table, cudf::column_view const& map, cudf::out_of_bounds_policy bounds,
    Work& work) {
    return cudf::gather(table, map, bounds, work.stream(), work.mr());
}

TablePtr join_columns(TablePtr left, TablePtr right) {
    auto const rows = left->num_columns() > 0 ? left->num_rows() : right->num_rows();
    auto columns = left->release();
    for (auto& column : right->release()) {
        columns.push_back(std::move(column));
    }
    return std::make_unique<cudf::table>(std::move(columns), rows);
}

ColumnPtr cast_to(ColumnPtr column, cudf::data_type type, Work& work) {
    if (column->type() == type) {
        return column;
    }
    return cudf::cast(column->view(), type, work.stream(), work.mr());
}

ColumnPtr normalized(ColumnPtr column, Work& work) {
    if (cudf::is_floating_point(column->type())) {
        return cudf::normalize_nans_and_zeros(column->view(), work.stream(), work.mr());
    }
    return column;
}

RowSpan resolve(RowRange const& range, std::int64_t rows) {
    // As a slice of Polars: an offset before the first row begins there, but its length counts from where it would be.
    auto const begin = range.offset < 0 ? rows + range.offset : range.offset;
    auto end = rows;
    if (range.length
        && *range.length < std::numeric_limits<std::int64_t>::max() - std::max<std::int64_t>(begin, 0)) {
        end = begin + *range.length;
    }
    RowSpan span{std::clamp<std::int64_t>(begin, 0, rows), std::clamp<std::int64_t>(end, 0, rows)};
    span.end = std::max(span.begin, span.end);
    return span;
}

std::optional<std::int64_t> rows_needed(RowRange const& range) {
    if (range.offset < 0 || !range.length
        || *range.length > std::numeric_limits<std::int64_t>::max() - range.offset) {
        return std::nullopt;
    }
    return range.offset + *range.length;
}

}  // namespace rapidsmpf::compute

// Elements of lists, fields of structs.
#include <utility>
#include <variant>

#include <cudf/aggregation.hpp>
#include <cudf/copying.hpp>
#include <cudf/lists/contains.hpp>
#include <cudf/lists/count_elements.hpp>
#include <cudf/lists/extract.hpp>
#include <cudf/lists/lists_column_view.hpp>
#include <cudf/null_mask.hpp>
#include <cudf/reduction.hpp>
#include <cudf/structs/structs_column_view.hpp>
#include <cudf/utilities/span.hpp>

#include "compute/functions.hpp"

namespace rapidsmpf::compute {

namespace {

cudf::lists_column_view lists_of(Call& call) {
    return cudf::lists_column_view{call.column(0)};
}

// Null also where the other column is.
ColumnPtr null_where(ColumnPtr column, cudf::column_view const& other, Call& call) {
    if (!other.has_nulls()) {
        return column;
    }
    auto [mask, nulls] =
        cudf::bitmask_and(cudf::table_view{{column->view(), other}}, call.stream(), call.mr());
    column->set_null_mask(std::move(mask), nulls);
    if (cudf::has_nonempty_nulls(column->view(), call.stream())) {
        return cudf::purge_nonempty_nulls(column->view(), call.stream(), call.mr());
    }
    return column;
}

ColumnPtr list_length(Call& call) {
    return cudf::lists::count_elements(lists_of(call), call.stream(), call.mr());
}

ColumnPtr list_contains(Call& call) {
    auto const lists = lists_of(call);
    if (auto const* const key = call.constant(1)) {
        return cudf::lists::contains(lists, *key, call.stream(), call.mr());
    }
    return cudf::lists::contains(lists, call.column(1), call.stream(), call.mr());
}

ColumnPtr list_element(Call& call) {
    return cudf::lists::extract_list_element(lists_of(call), call.number(0), call.stream(), call.mr());
}

using ListReduction = cudf::segmented_reduce_aggregation;

template <std::unique_ptr<ListReduction> (*make)()>
ColumnPtr reduce_lists(Call& call) {
    auto const lists = lists_of(call);
    // Where lists of a slice begin and end is counted from the first element of all.
    cudf::device_span<cudf::size_type const> const offsets{
        lists.offsets_begin(), static_cast<std::size_t>(lists.size()) + 1};
    auto reduced = cudf::segmented_reduce(
        lists.child(), offsets, *make(), call.type(), cudf::null_policy::EXCLUDE, call.stream(), call.mr());
    return null_where(std::move(reduced), lists.parent(), call);  // a null list may have elements
}

ColumnPtr struct_field(Call& call) {
    cudf::structs_column_view const structs{call.column(0)};
    if (structs.is_empty()) {
        return cudf::empty_like(structs.child(call.number(0)));
    }
    auto const values = structs.get_sliced_child(call.number(0), call.stream());
    return null_where(std::make_unique<cudf::column>(values, call.stream(), call.mr()), structs, call);
}

constexpr Primitive nested_table[]{
    {"list.length", 1, "", list_length},
    {"list.contains", 2, "", list_contains},
    {"list.get", 1, "index", list_element},
    {"list.sum", 1, "", reduce_lists<cudf::make_sum_aggregation<ListReduction>>},
    {"list.min", 1, "", reduce_lists<cudf::make_min_aggregation<ListReduction>>},
    {"list.max", 1, "", reduce_lists<cudf::make_max_aggregation<ListReduction>>},
    {"struct.field", 1, "index", struct_field},
};

}  // namespace

std::span<Primitive const> nested_primitives() {
    return nested_table;
}

}  // namespace rapidsmpf::compute

// The calls of libcudf that aggregate: grouped by keys, and whole columns.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/fixed_point/fixed_point.hpp>
#include <cudf/groupby.hpp>
#include <cudf/reduction.hpp>
#include <cudf/reduction/distinct_count.hpp>
#include <cudf/replace.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/sorting.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/traits.hpp>

#include "compute/aggregates.hpp"
#include "compute/short_texts.hpp"

namespace rapidsmpf::compute {

namespace {

constexpr cudf::data_type as_int8{cudf::type_id::INT8};
constexpr cudf::data_type as_int32{cudf::type_id::INT32};
constexpr cudf::data_type as_int64{cudf::type_id::INT64};
constexpr cudf::data_type as_float64{cudf::type_id::FLOAT64};

// The same bytes as another type of that width.
cudf::column_view reinterpret(cudf::column_view const& column, cudf::data_type type) {
    return cudf::column_view{
        type, column.size(), column.head<void>(), column.null_mask(), column.null_count(), column.offset()};
}

bool is_days(cudf::data_type type) {
    return type.id() == cudf::type_id::TIMESTAMP_DAYS || type.id() == cudf::type_id::DURATION_DAYS;
}

bool is_wide_integer(cudf::data_type type) {
    return type.id() == cudf::type_id::INT64 || type.id() == cudf::type_id::UINT64;
}

// Whether no sum of the column's 64-bit decimals can overflow.
bool sums_fit(cudf::column_view const& column, Work& work) {
    if (column.size() == 0) {
        return true;
    }
    auto const [least, greatest] = cudf::minmax(reinterpret(column, as_int64), work.stream(), work.mr());
    using Scalar = cudf::numeric_scalar<std::int64_t>;
    if (!least->is_valid(work.stream())) {
        return true;
    }
    auto const limit = std::numeric_limits<std::int64_t>::max() / column.size();
    return static_cast<Scalar const&>(*least).value(work.stream()) >= -limit
           && static_cast<Scalar const&>(*greatest).value(work.stream()) <= limit;
}

// A column as it is aggregated: a view, and what it is a view of if that had to be made.
struct Values {
    cudf::column_view view;
    ColumnPtr owner;
    cudf::data_type sum_type;  // what a sum of it is to be
};

class Reader {
  public:
    Reader(cudf::table_view const& rows, Work& work) : rows_{rows}, work_{work} {}

    // Remembers what has been made: several states read a column alike.
    Values const& read(State const& state) {
        auto const key = std::tuple{state.column, state.read, state.wide_float, state.wide_decimal};
        auto const found = made_.find(key);
        return found != made_.end() ? found->second : made_.emplace(key, make(state)).first->second;
    }
    [[nodiscard]] static auto key_of(State const& state) {
        return std::tuple{state.column, state.read, state.wide_float, state.wide_decimal};
    }

  private:
    [[nodiscard]] Values cast(cudf::column_view const& column, cudf::data_type type) {
        auto owner = cudf::cast(column, type, work_.stream(), work_.mr());
        auto const view = owner->view();
        return {view, std::move(owner), type};
    }

    [[nodiscard]] Values make(State const& state) {
        auto const column = rows_.column(state.column);
        auto const type = column.type();
        switch (state.read) {
            case ReadAs::itself:
                return {column, nullptr, type};
            case ReadAs::real:
                return type == as_float64 ? Values{column, nullptr, as_float64}
                                          : cast(number(column), as_float64);
            case ReadAs::normalized: {
                if (!cudf::is_floating_point(type)) {
                    return {column, nullptr, type};
                }
                auto owner = cudf::normalize_nans_and_zeros(column, work_.stream(), work_.mr());
                auto const view = owner->view();
                return {view, std::move(owner), type};
            }
            case ReadAs::number:
            case ReadAs::for_mean:
                break;
        }
        if (type.id() == cudf::type_id::BOOL8) {
            return cast(column, as_int8);
        }
        if (cudf::is_floating_point(type)) {
            return type == as_float64 || !state.wide_float ? Values{column, nullptr, type}
                                                           : cast(column, as_float64);
        }
        if (cudf::is_fixed_point(type)) {
            return decimals(column, state.wide_decimal);
        }
        auto const as_number = number(column);
        if (state.read == ReadAs::for_mean && is_wide_integer(as_number.type())) {
            return cast(as_number, as_float64);
        }
        return {as_number, nullptr, as_int64};
    }

    [[nodiscard]] static cudf::column_view number(cudf::column_view const& column) {
        return cudf::is_chrono(column.type())
                   ? reinterpret(column, is_days(column.type()) ? as_int32 : as_int64)
                   : column;
    }

    // A sum is of the type of its values: 64 bits are summed as they are while nothing overflows.
    [[nodiscard]] Values decimals(cudf::column_view const& column, bool wide) {
        auto const scale = column.type().scale();
        cudf::data_type const narrow_type{cudf::type_id::DECIMAL64, scale};
        cudf::data_type const wide_type{cudf::type_id::DECIMAL128, scale};
        auto const id = column.type().id();
        if (id == cudf::type_id::DECIMAL128) {
            return {column, nullptr, wide_type};
        }
        auto const result = wide ? wide_type : narrow_type;
        if (id == cudf::type_id::DECIMAL32) {  // 2^31 rows of 2^31 fit
            auto values = cast(column, narrow_type);
            values.sum_type = result;
            return values;
        }
        if (!wide || sums_fit(column, work_)) {
            return {column, nullptr, result};
        }
        return cast(column, wide_type);
    }

    cudf::table_view const& rows_;
    Work& work_;
    std::map<std::tuple<std::int32_t, ReadAs, bool, bool>, Values> made_;
};

template <typename Base>
std::unique_ptr<Base> make_aggregation(State const& state) {
    constexpr auto include = cudf::null_policy::INCLUDE;
    constexpr auto exclude = cudf::null_policy::EXCLUDE;
    switch (state.kind) {
        case StateKind::sum:
            return cudf::make_sum_aggregation<Base>();
        case StateKind::product:
            return cudf::make_product_aggregation<Base>();
        case StateKind::min:
            return cudf::make_min_aggregation<Base>();
        case StateKind::max:
            return cudf::make_max_aggregation<Base>();
        case StateKind::var:
            return cudf::make_variance_aggregation<Base>(state.ddof);
        case StateKind::std:
            return cudf::make_std_aggregation<Base>(state.ddof);
        case StateKind::quantile:
            return cudf::make_quantile_aggregation<Base>({state.quantile}, state.interpolation);
        case StateKind::nunique:
            return cudf::make_nunique_aggregation<Base>(include);
        case StateKind::nunique_valid:
            return cudf::make_nunique_aggregation<Base>(exclude);
        case StateKind::first:
            return cudf::make_nth_element_aggregation<Base>(0, include);
        case StateKind::last:
            return cudf::make_nth_element_aggregation<Base>(-1, include);
        case StateKind::count_valid:
        case StateKind::count_all:
            break;
    }
    if constexpr (std::is_same_v<Base, cudf::groupby_aggregation>) {
        return cudf::make_count_aggregation<Base>(state.kind == StateKind::count_all ? include : exclude);
    } else {
        throw std::logic_error{"rows of a whole column are not counted by a reduction"};
    }
}

// States of sums have the same type whatever their chunk was summed as.
ColumnPtr as_state(ColumnPtr column, State const& state, Values const& values, Work& work) {
    if (is_count(state.kind)) {
        return cast_to(std::move(column), as_int64, work);
    }
    if (state.kind == StateKind::sum && cudf::is_fixed_point(values.sum_type)) {
        return cast_to(std::move(column), values.sum_type, work);
    }
    return column;
}

ColumnPtr int64_column(std::int64_t value, Work& work) {
    cudf::numeric_scalar<std::int64_t> const scalar{value, true, work.stream(), work.mr()};
    return cudf::make_column_from_scalar(scalar, 1, work.stream(), work.mr());
}

ColumnPtr reduce(cudf::column_view const& values, State const& state, Work& work) {
    auto const type = values.type();
    auto output = type;
    switch (state.kind) {
        case StateKind::count_valid:
            return int64_column(values.size() - values.null_count(), work);
        case StateKind::count_all:
            return int64_column(values.size(), work);
        case StateKind::nunique:
        case StateKind::nunique_valid:
            return int64_column(
                cudf::distinct_count(
                    values,
                    state.kind == StateKind::nunique ? cudf::null_policy::INCLUDE
                                                     : cudf::null_policy::EXCLUDE,
                    cudf::nan_policy::NAN_IS_VALID, work.stream()),
                work);
        case StateKind::first:
        case StateKind::last:
            return std::make_unique<cudf::column>(
                cudf::slice(
                    values,
                    {state.kind == StateKind::first ? 0 : values.size() - 1,
                     state.kind == StateKind::first ? 1 : values.size()},
                    work.stream())
                    .front(),
                work.stream(), work.mr());
        case StateKind::var:
        case StateKind::std:
            if (values.size() - values.null_count() <= state.ddof) {
                return null_column(as_float64, 1, work);
            }
            output = as_float64;
            break;
        case StateKind::quantile:
            output = as_float64;
            break;
        case StateKind::sum:
        case StateKind::product:
            if (cudf::is_integral(type)) {
                output = as_int64;
            }
            break;
        default:
            break;
    }
    auto const aggregation = make_aggregation<cudf::reduce_aggregation>(state);
    auto const scalar = cudf::reduce(values, *aggregation, output, work.stream(), work.mr());
    return cudf::make_column_from_scalar(*scalar, 1, work.stream(), work.mr());
}

// Whether the rows are in the order of their key, as those of files often are: libcudf then aggregates runs of rows, and needs no
// hash table.
bool are_in_order(cudf::table_view const& keys, Work& work) {
    constexpr cudf::size_type least_rows = 100'000;  // of fewer, looking costs as much as it saves
    constexpr cudf::size_type first_look = 10'000;
    if (keys.num_columns() != 1 || keys.num_rows() < least_rows) {
        return false;
    }
    auto const key = keys.column(0);
    if (key.has_nulls() || !(cudf::is_integral_not_bool(key.type()) || cudf::is_chrono(key.type()))) {
        return false;
    }
    // Keys without an order are told apart by the first of them.
    auto const first = cudf::slice(key, {0, first_look}, work.stream()).front();
    return cudf::is_sorted(cudf::table_view{{first}}, {}, {}, work.stream())
           && cudf::is_sorted(keys, {}, {}, work.stream());
}

}  // namespace

TablePtr aggregate_groups(
    cudf::table_view const& keys, cudf::table_view const& rows, std::span<State const> states, Work& work) {
    Reader reader{rows, work};
    // libcudf takes a column once, with all that is to be made of it.
    using Key = decltype(Reader::key_of(State{}));
    std::map<Key, std::size_t> places;
    std::vector<cudf::groupby::aggregation_request> requests;
    std::vector<std::pair<std::size_t, std::size_t>> found;
    auto const ask = [&](Key const& key, cudf::column_view const& values, State const& state) {
        auto const [place, added] = places.try_emplace(key, requests.size());
        if (added) {
            requests.emplace_back().values = values;
        }
        auto& request = requests[place->second];
        found.emplace_back(place->second, request.aggregations.size());
        request.aggregations.push_back(make_aggregation<cudf::groupby_aggregation>(state));
    };
    for (auto const& state : states) {
        ask(Reader::key_of(state), reader.read(state).view, state);
    }
    State count;
    count.kind = StateKind::count_all;
    if (states.empty()) {  // the keys alone
        ask(Reader::key_of(count), keys.column(0), count);
    }
    ShortTexts const short_keys{keys, work};
    cudf::groupby::groupby groups{
        short_keys.view(), cudf::null_policy::INCLUDE,
        are_in_order(keys, work) ? cudf::sorted::YES : cudf::sorted::NO};
    auto [group_keys, results] = groups.aggregate(requests, work.stream(), work.mr());
    auto const size = group_keys->num_rows();
    auto columns = group_keys->release();
    short_keys.put_strings(columns, work);
    for (std::size_t i = 0; i < states.size(); ++i) {
        auto const [request, place] = found[i];
        columns.push_back(
            as_state(std::move(results[request].results[place]), states[i], reader.read(states[i]), work));
    }
    return std::make_unique<cudf::table>(std::move(columns), size);
}

TablePtr aggregate_all(cudf::table_view const& rows, std::span<State const> states, Work& work) {
    Reader reader{rows, work};
    std::vector<ColumnPtr> columns;
    for (auto const& state : states) {
        auto const& values = reader.read(state);
        columns.push_back(as_state(reduce(values.view, state, work), state, values, work));
    }
    return std::make_unique<cudf::table>(std::move(columns), 1);
}

}  // namespace rapidsmpf::compute

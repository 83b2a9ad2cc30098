#include "compute/aggregates.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <cudf/binaryop.hpp>
#include <cudf/column/column_factories.hpp>
#include <cudf/filling.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/scalar/scalar_factories.hpp>
#include <cudf/sorting.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/traits.hpp>

#include <rapidsmpf/core/error.hpp>

#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

constexpr cudf::data_type int64{cudf::type_id::INT64};
constexpr cudf::data_type float64{cudf::type_id::FLOAT64};

template <typename T>
T option(Aggregate const& aggregate, std::size_t place, T otherwise) {
    if (place >= aggregate.options.size()) {
        return otherwise;
    }
    if constexpr (std::is_same_v<T, std::string>) {
        if (auto const* const text = std::get_if<std::string>(&aggregate.options[place])) {
            return *text;
        }
    } else {
        if (auto const* const whole = std::get_if<std::int64_t>(&aggregate.options[place])) {
            return static_cast<T>(*whole);
        }
        if (auto const* const real = std::get_if<double>(&aggregate.options[place])) {
            return static_cast<T>(*real);
        }
    }
    throw std::invalid_argument{"option " + std::to_string(place) + " of an aggregate has another type"};
}

cudf::interpolation interpolation_of(std::string const& name) {
    std::pair<char const*, cudf::interpolation> constexpr names[] = {
        {"linear", cudf::interpolation::LINEAR},   {"lower", cudf::interpolation::LOWER},
        {"higher", cudf::interpolation::HIGHER},   {"midpoint", cudf::interpolation::MIDPOINT},
        {"nearest", cudf::interpolation::NEAREST},
    };
    std::string lower{name};
    std::transform(
        lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (auto const& [known, value] : names) {
        if (lower == known) {
            return value;
        }
    }
    throw std::invalid_argument{"there is no interpolation " + name};
}

// Of a merge: what becomes of two states of the kind.
std::optional<StateKind> merged_by(StateKind kind) {
    switch (kind) {
        case StateKind::sum:
        case StateKind::count_valid:
        case StateKind::count_all:
            return StateKind::sum;
        case StateKind::product:
        case StateKind::min:
        case StateKind::max:
            return kind;
        default:
            return std::nullopt;
    }
}

ColumnPtr as_real(ColumnPtr column, Work& work) {
    if (cudf::is_chrono(column->type())) {
        column = cast_to(std::move(column), int64, work);
    }
    return cast_to(std::move(column), float64, work);
}

// A result of integers or floats as the type that it stands for.
ColumnPtr as_type(ColumnPtr column, cudf::data_type type, Work& work) {
    if (column->type() == type || !cudf::is_chrono(type)) {
        return cast_to(std::move(column), type, work);
    }
    auto const days = type.id() == cudf::type_id::TIMESTAMP_DAYS || type.id() == cudf::type_id::DURATION_DAYS;
    if (cudf::is_chrono(column->type())) {
        return cast_to(std::move(column), type, work);
    }
    auto number = cast_to(std::move(column), days ? cudf::data_type{cudf::type_id::INT32} : int64, work);
    auto const size = number->size();
    auto const nulls = number->null_count();
    auto contents = number->release();
    return std::make_unique<cudf::column>(
        type, size, std::move(*contents.data), std::move(*contents.null_mask), nulls);
}

}  // namespace

AggregatePlan::AggregatePlan(Group const& plan, std::vector<DataType> types)
    : types_{std::move(types)}, num_keys_{plan.keys.size()}, in_order_{plan.in_order && !plan.keys.empty()} {
    RAPIDSMPF_EXPECTS(
        types_.size() == plan.keys.size() + plan.aggregates.size(),
        "a group has " + std::to_string(plan.keys.size() + plan.aggregates.size()) + " results and "
            + std::to_string(types_.size()) + " types",
        std::invalid_argument);
    needed_ = plan.keys;  // keys first, even if one is there twice
    auto const place = [&](std::int32_t column) {
        auto const found = std::find(needed_.begin(), needed_.end(), column);
        if (found == needed_.end()) {
            needed_.push_back(column);
            return static_cast<std::int32_t>(needed_.size() - 1);
        }
        return static_cast<std::int32_t>(found - needed_.begin());
    };
    for (auto const& aggregate : plan.aggregates) {
        using Kind = AggregateKind;
        auto const type = to_cudf(aggregate.type);
        Output output;
        output.kind = aggregate.kind;
        State state;
        // Any column will do for a count of rows: one that is there anyway.
        state.column = aggregate.kind == Kind::count_all && !needed_.empty() ? 0 : place(aggregate.column);
        switch (aggregate.kind) {
            case Kind::sum:
            case Kind::product:
                state.kind = aggregate.kind == Kind::sum ? StateKind::sum : StateKind::product;
                state.read = ReadAs::number;
                state.wide_float = type.id() == cudf::type_id::FLOAT64 || num_keys_ == 0;
                state.wide_decimal = type.id() == cudf::type_id::DECIMAL128;
                break;
            case Kind::min:
                state.kind = StateKind::min;
                break;
            case Kind::max:
            case Kind::any:  // the greatest is one of them
                state.kind = StateKind::max;
                break;
            case Kind::count_valid:
                state.kind = StateKind::count_valid;
                break;
            case Kind::count_all:
                state.kind = StateKind::count_all;
                break;
            case Kind::mean: {
                state.kind = StateKind::sum;
                state.read = ReadAs::for_mean;
                state.wide_float = true;
                state.wide_decimal = true;
                output.states.push_back(add(state));
                State count;
                count.kind = StateKind::count_valid;
                count.column = state.column;
                state = count;
                break;
            }
            case Kind::nunique:
            case Kind::nunique_valid:
                state.kind = aggregate.kind == Kind::nunique ? StateKind::nunique : StateKind::nunique_valid;
                state.read = ReadAs::normalized;
                break;
            case Kind::var:
            case Kind::std:
                state.kind = aggregate.kind == Kind::var ? StateKind::var : StateKind::std;
                state.read = ReadAs::real;
                state.ddof = option<std::int32_t>(aggregate, 0, 1);
                break;
            case Kind::median:
            case Kind::quantile:
                state.kind = StateKind::quantile;
                state.read = ReadAs::real;
                if (aggregate.kind == Kind::quantile) {
                    state.quantile = option<double>(aggregate, 0, 0.5);
                    state.interpolation = interpolation_of(option<std::string>(aggregate, 1, "linear"));
                }
                break;
            case Kind::first:
            case Kind::last:
                state.kind = aggregate.kind == Kind::first ? StateKind::first : StateKind::last;
                needs_order_ = true;
                break;
        }
        output.states.push_back(add(state));
        outputs_.push_back(std::move(output));
    }
    if (in_order_) {
        State row;
        row.kind = StateKind::min;
        row.column = -1;
        (void)add(row);
    }
    for (auto const& state : states_) {
        can_merge_ = can_merge_ && merged_by(state.kind).has_value();
    }
    if (needed_.empty()) {
        needed_.push_back(0);  // rows have to be counted by a column
    }
    by_codes_.resize(needed_.size(), true);
    for (auto const& state : states_) {
        if (state.column >= 0 && !is_count(state.kind)) {
            by_codes_[static_cast<std::size_t>(state.column)] = false;
        }
    }
}

std::size_t AggregatePlan::add(State state) {
    auto const found = std::find(states_.begin(), states_.end(), state);
    if (found != states_.end()) {
        return static_cast<std::size_t>(found - states_.begin());
    }
    states_.push_back(state);
    return states_.size() - 1;
}

std::vector<bool> AggregatePlan::keys_by_codes() const {
    return {by_codes_.begin(), by_codes_.begin() + static_cast<std::ptrdiff_t>(num_keys_)};
}

Chunk AggregatePlan::rows(Chunk chunk, Work& work) const {
    auto const count = chunk.rows->num_rows();
    Chunk result;
    result.sequence = chunk.sequence;
    result.coding = select_coding(chunk.coding, needed_);
    // A column may be a key and something else; keys that are there twice need a second copy.
    std::vector<ColumnPtr> columns;
    auto all = chunk.rows->release();
    for (std::size_t i = 0; i < needed_.size(); ++i) {
        auto& column = all.at(static_cast<std::size_t>(needed_[i]));
        auto const again =
            std::find(needed_.begin() + static_cast<std::ptrdiff_t>(i) + 1, needed_.end(), needed_[i]);
        columns.push_back(
            again == needed_.end() ? std::move(column)
                                   : std::make_unique<cudf::column>(*column, work.stream(), work.mr()));
    }
    if (in_order_) {
        auto const first = static_cast<std::int64_t>(chunk.sequence << 31U);
        cudf::numeric_scalar<std::int64_t> const begin{first, true, work.stream(), work.mr()};
        cudf::numeric_scalar<std::int64_t> const step{1, true, work.stream(), work.mr()};
        columns.push_back(cudf::sequence(count, begin, step, work.stream(), work.mr()));
    }
    result.rows = std::make_unique<cudf::table>(std::move(columns), count);
    for (std::size_t i = 0; i < needed_.size(); ++i) {
        if (!by_codes_[i]) {
            decode_column(result, i, work);
        }
    }
    return result;
}

TablePtr AggregatePlan::aggregate(cudf::table_view const& rows, Work& work) const {
    auto states = states_;
    for (auto& state : states) {
        if (state.column < 0) {
            state.column = rows.num_columns() - 1;
        }
    }
    if (num_keys_ == 0) {
        return aggregate_all(rows, states, work);
    }
    std::vector<std::int32_t> keys;
    for (std::size_t i = 0; i < num_keys_; ++i) {
        keys.push_back(static_cast<std::int32_t>(i));
    }
    return aggregate_groups(select(rows, keys), rows, states, work);
}

TablePtr AggregatePlan::merge(cudf::table_view const& states, Work& work) const {
    std::vector<State> merged;
    std::vector<std::int32_t> keys;
    for (std::size_t i = 0; i < num_keys_; ++i) {
        keys.push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < states_.size(); ++i) {
        State state;
        state.kind = merged_by(states_[i].kind).value();
        state.column = static_cast<std::int32_t>(num_keys_ + i);
        merged.push_back(state);
    }
    return num_keys_ == 0 ? aggregate_all(states, merged, work)
                          : aggregate_groups(select(states, keys), states, merged, work);
}

class AggregatePlan::StateColumns {
  public:
    StateColumns(std::vector<ColumnPtr> columns, std::vector<Output> const& outputs)
        : columns_{std::move(columns)}, uses_(columns_.size()) {
        for (auto const& output : outputs) {
            for (auto const state : output.states) {
                ++uses_[state];
            }
        }
    }

    [[nodiscard]] ColumnPtr take(std::size_t state, Work& work) {
        if (--uses_[state] == 0) {
            return std::move(columns_[state]);
        }
        return std::make_unique<cudf::column>(*columns_[state], work.stream(), work.mr());
    }

  private:
    std::vector<ColumnPtr> columns_;
    std::vector<std::size_t> uses_;
};

ColumnPtr AggregatePlan::finish(Output const& output, StateColumns& states, DataType type, Work& work) {
    auto const wanted = to_cudf(type);
    auto value = states.take(output.states.front(), work);
    if (output.kind == AggregateKind::mean) {
        auto const sum = as_real(std::move(value), work);
        auto const count = as_real(states.take(output.states.back(), work), work);
        value = cudf::binary_operation(
            sum->view(), count->view(), cudf::binary_operator::DIV, float64, work.stream(), work.mr());
    }
    return normalized(as_type(std::move(value), wanted, work), work);
}

TablePtr AggregatePlan::result(TablePtr states, Work& work) const {
    if (in_order_) {
        auto const row = states->num_columns() - 1;
        states = cudf::sort_by_key(
            states->view(), cudf::table_view{{states->view().column(row)}}, {}, {}, work.stream(), work.mr());
    }
    auto const rows = states->num_rows();
    auto all = states->release();
    auto const first = all.begin() + static_cast<std::ptrdiff_t>(num_keys_);
    StateColumns columns{{std::make_move_iterator(first), std::make_move_iterator(all.end())}, outputs_};
    all.resize(num_keys_);
    for (auto& key : all) {
        key = normalized(std::move(key), work);
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        all.push_back(finish(outputs_[i], columns, types_[num_keys_ + i], work));
    }
    return std::make_unique<cudf::table>(std::move(all), rows);
}

TablePtr AggregatePlan::result_of_nothing(Work& work) const {
    if (num_keys_ > 0) {
        return empty_table(types_);
    }
    std::vector<ColumnPtr> columns;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
        auto const type = to_cudf(types_[i]);
        switch (outputs_[i].kind) {
            case AggregateKind::count_valid:
            case AggregateKind::count_all:
            case AggregateKind::nunique:
            case AggregateKind::nunique_valid: {
                cudf::numeric_scalar<std::int64_t> const zero{0, true, work.stream(), work.mr()};
                columns.push_back(
                    cast_to(cudf::make_column_from_scalar(zero, 1, work.stream(), work.mr()), type, work));
                break;
            }
            default:
                columns.push_back(null_column(type, 1, work));
        }
    }
    return std::make_unique<cudf::table>(std::move(columns), 1);
}

}  // namespace rapidsmpf::compute

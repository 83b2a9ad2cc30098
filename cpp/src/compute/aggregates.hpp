// Aggregates of groups of rows, by libcudf: of a chunk, of what chunks gave, and from those the results.
//
// An aggregate is made of states: columns beside the keys, a value for each group. States of most kinds can be merged (sums,
// counts, extremes), so chunks are aggregated each by itself; where an aggregate has one that cannot (medians, numbers of
// distinct values), all rows are aggregated at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <cudf/aggregation.hpp>
#include <cudf/types.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/operators.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

enum class StateKind : std::uint8_t {
    sum,
    product,
    min,
    max,
    count_valid,
    count_all,
    nunique,
    nunique_valid,
    var,
    std,
    quantile,
    first,
    last
};

[[nodiscard]] constexpr bool is_count(StateKind kind) {
    return kind == StateKind::count_valid || kind == StateKind::count_all || kind == StateKind::nunique
           || kind == StateKind::nunique_valid;
}

// How a column's values are read before they are aggregated.
enum class ReadAs : std::uint8_t {
    itself,
    number,  // what libcudf sums: times by their integers, truth as integers, decimals and floats wide enough
    for_mean,    // the same, but so that sums of integers do not overflow
    real,        // double
    normalized,  // with NaNs and zeros of one sign
};

struct State {
    StateKind kind{StateKind::sum};
    std::int32_t column{0};  // of the rows; -1: the number of the row
    ReadAs read{ReadAs::itself};
    bool wide_float{false};    // ReadAs::number: FLOAT32 is summed as FLOAT64
    bool wide_decimal{false};  // ReadAs::number: decimals are summed in 128 bits
    std::int32_t ddof{1};
    double quantile{0.5};
    cudf::interpolation interpolation{cudf::interpolation::LINEAR};
    friend bool operator==(State const&, State const&) noexcept = default;
};

// Immutable.
class AggregatePlan {
  public:
    // types: of the keys, then of the aggregates. Throws std::invalid_argument for options that cannot be.
    AggregatePlan(Group const& plan, std::vector<DataType> types);

    [[nodiscard]] bool can_merge() const noexcept { return can_merge_; }
    // Whether the result depends on the order of the rows.
    [[nodiscard]] bool needs_order() const noexcept { return needs_order_; }
    // Columns of the rows that are needed, in the order in which aggregate() wants them.
    [[nodiscard]] std::vector<std::int32_t> const& needed() const noexcept { return needed_; }

    // The needed columns, and for groups in order the number of each row. Coded columns stay coded where no
    // aggregate needs the strings themselves.
    [[nodiscard]] Chunk rows(Chunk chunk, Work& work) const;
    // For each key column: whether rows() may give its codes, because no aggregate needs the strings themselves.
    [[nodiscard]] std::vector<bool> keys_by_codes() const;
    // Keys and states of rows as rows() gives them.
    [[nodiscard]] TablePtr aggregate(cudf::table_view const& rows, Work& work) const;
    // Keys and states of several such tables, one below the other.
    [[nodiscard]] TablePtr merge(cudf::table_view const& states, Work& work) const;
    // Keys and aggregates of keys and states, of which there is one for each group.
    [[nodiscard]] TablePtr result(TablePtr states, Work& work) const;
    // The result without rows to aggregate.
    [[nodiscard]] TablePtr result_of_nothing(Work& work) const;

    [[nodiscard]] std::size_t num_keys() const noexcept { return num_keys_; }

  private:
    // States by their numbers; mean has two.
    struct Output {
        AggregateKind kind{AggregateKind::sum};
        std::vector<std::size_t> states;
    };

    std::size_t add(State state);
    // Takes a state out, or copies it while others want it, too.
    class StateColumns;
    [[nodiscard]] static ColumnPtr finish(
        Output const& output, StateColumns& states, DataType type, Work& work);

    std::vector<DataType> types_;
    std::size_t num_keys_{0};
    bool in_order_{false};
    bool can_merge_{true};
    bool needs_order_{false};
    std::vector<std::int32_t> needed_;
    std::vector<bool> by_codes_;  // for each needed column: whether no aggregate needs its strings themselves
    std::vector<State> states_;   // their columns are places in needed_
    std::vector<Output> outputs_;
};

// The work on libcudf: keys and states; without keys a row of states. Columns of the states are those of `rows`.
[[nodiscard]] TablePtr aggregate_groups(
    cudf::table_view const& keys, cudf::table_view const& rows, std::span<State const> states, Work& work);
[[nodiscard]] TablePtr aggregate_all(cudf::table_view const& rows, std::span<State const> states, Work& work);

}  // namespace rapidsmpf::compute

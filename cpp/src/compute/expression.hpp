// Expressions of a program over chunks of rows: their constants are on the device once, and calls go to libcudf.
//
// What several expressions of one chunk have in common is computed once, and freed after its last use. Calls that depend on one coded
// column only are computed for each of its strings, not for each row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cudf/column/column.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/table/table_view.hpp>
#include <cudf/types.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/functions.hpp"
#include "compute/operators.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// Immutable; used by several threads at a time. Expressions are named by their numbers in the program.
class Expressions {
  public:
    // Waits until the constants are on the device. Throws std::invalid_argument if a call names no primitive, or does not
    // have the arguments and options of its primitive.
    Expressions(Program const& program, Work& work);

    // The conditions that are all true where a condition is.
    [[nodiscard]] std::vector<std::int32_t> conjuncts(std::int32_t id) const;
    // The column that the values of an expression depend on, if it is only one.
    [[nodiscard]] std::optional<std::int32_t> only_column(std::int32_t id) const;
    // Whether all conditions are true.
    [[nodiscard]] ColumnPtr mask(std::span<std::int32_t const> ids, Chunk const& chunk, Work& work) const;
    // The expressions' values, in a column for each number. Columns that are only passed on are moved.
    [[nodiscard]] Chunk project(std::span<std::int32_t const> ids, Chunk chunk, Work& work) const;

  private:
    // An expression, and what is made for it before the first chunk.
    struct Node {
        Expression expression;
        cudf::data_type type;
        Primitive const* primitive{nullptr};  // of a call
        Prepared prepared;                    // of a call
        ColumnPtr constant;
        std::unique_ptr<cudf::scalar> scalar;  // of a constant of one row
        // The only column that the value depends on.
        static constexpr std::int32_t no_column = -1;
        static constexpr std::int32_t several_columns = -2;
        std::int32_t only_column{no_column};
    };
    class Evaluation;  // of one chunk

    void add_constant(Node& node, Table const& table, Work& work);
    void add_call(Node& node, Work& work);
    void check_argument(Node const& call, std::size_t place) const;
    [[nodiscard]] std::int32_t only_column_of(Expression const& expression) const;

    std::vector<Node> nodes_;
};

}  // namespace rapidsmpf::compute

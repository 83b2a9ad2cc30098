// Expressions of a program over chunks: constants are on the device once, calls go to libcudf.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cudf/scalar/scalar.hpp>

#include "compute/tables.hpp"

namespace rapidsmpf::compute {
class Expressions {
  public:
    Expressions(Program const& program, Work& work, bool fuse = true);
    [[nodiscard]] std::vector<ColumnPtr> evaluate(
        std::span<std::int32_t const> ids, cudf::table_view rows, Work& work) const;
    [[nodiscard]] ColumnPtr mask(std::int32_t id, cudf::table_view rows, Work& work) const;
    [[nodiscard]] TablePtr project(std::span<std::int32_t const> ids, TablePtr rows, Work& work) const;

  private:
    struct Value {
        ColumnPtr owned;
        cudf::column_view view;
        cudf::scalar const* scalar{nullptr};
        int uses{0};
        bool done{false};
    };
    void compute(std::int32_t id, cudf::table_view rows, std::vector<Value>& values, Work& work) const;
    void count(std::int32_t id, std::vector<Value>& values) const;
    [[nodiscard]] ColumnPtr call(
        Expression const& e, std::vector<Value>& values, cudf::size_type rows, Work& work) const;
    [[nodiscard]] ColumnPtr take(
        std::int32_t id, std::vector<Value>& values, cudf::size_type rows, Work& work) const;
    std::vector<Expression> expressions_;
    std::vector<ColumnPtr> constants_;                    // by expression
    std::vector<std::unique_ptr<cudf::scalar>> scalars_;  // by expression
};
}  // namespace rapidsmpf::compute

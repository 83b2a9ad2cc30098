// Operations of one value: mathematics, tests, casts, rounding; and nulls.
#include <stdexcept>
#include <variant>

#include <cudf/replace.hpp>
#include <cudf/round.hpp>
#include <cudf/transform.hpp>
#include <cudf/unary.hpp>

#include "compute/functions.hpp"

namespace rapidsmpf::compute {

namespace {

using Unary = cudf::unary_operator;

template <Unary op>
ColumnPtr unary(Call& call) {
    return cudf::unary_operation(call.column(0), op, call.stream(), call.mr());
}

// A function of a column alone.
template <ColumnPtr (*function)(cudf::column_view const&, cuda::stream_ref, rmm::device_async_resource_ref)>
ColumnPtr of_column(Call& call) {
    return function(call.column(0), call.stream(), call.mr());
}

ColumnPtr cast_values(Call& call) {
    auto const values = call.column(0);
    if (values.type() == call.type()) {
        return std::make_unique<cudf::column>(values, call.stream(), call.mr());
    }
    return cudf::cast(values, call.type(), call.stream(), call.mr());
}

ColumnPtr cast_bits(Call& call) {
    return std::make_unique<cudf::column>(
        cudf::bit_cast(call.column(0), call.type()), call.stream(), call.mr());
}

cudf::rounding_method rounding_of(Call const& call) {
    if (call.text(1) == "half_even") {
        return cudf::rounding_method::HALF_EVEN;
    }
    if (call.text(1) == "half_up") {
        return cudf::rounding_method::HALF_UP;
    }
    throw std::invalid_argument("there is no rounding '" + call.text(1) + "'");
}

ColumnPtr round_exactly(Call& call) {
    return cudf::round_decimal(call.column(0), call.number(0), rounding_of(call), call.stream(), call.mr());
}

// Deprecated, but the one function of libcudf that rounds floats to digits.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
ColumnPtr round_values(Call& call) {
    return cudf::round(call.column(0), call.number(0), rounding_of(call), call.stream(), call.mr());
}
#pragma GCC diagnostic pop

ColumnPtr all_null(Call& call) {
    return null_column(call.type(), call.rows(), call.work());
}

constexpr Primitive unary_table[]{
    {"sin", 1, "", unary<Unary::SIN>},
    {"cos", 1, "", unary<Unary::COS>},
    {"tan", 1, "", unary<Unary::TAN>},
    {"arcsin", 1, "", unary<Unary::ARCSIN>},
    {"arccos", 1, "", unary<Unary::ARCCOS>},
    {"arctan", 1, "", unary<Unary::ARCTAN>},
    {"sinh", 1, "", unary<Unary::SINH>},
    {"cosh", 1, "", unary<Unary::COSH>},
    {"tanh", 1, "", unary<Unary::TANH>},
    {"arcsinh", 1, "", unary<Unary::ARCSINH>},
    {"arccosh", 1, "", unary<Unary::ARCCOSH>},
    {"arctanh", 1, "", unary<Unary::ARCTANH>},
    {"exp", 1, "", unary<Unary::EXP>},
    {"log", 1, "", unary<Unary::LOG>},
    {"sqrt", 1, "", unary<Unary::SQRT>},
    {"cbrt", 1, "", unary<Unary::CBRT>},
    {"ceil", 1, "", unary<Unary::CEIL>},
    {"floor", 1, "", unary<Unary::FLOOR>},
    {"abs", 1, "", unary<Unary::ABS>},
    {"rint", 1, "", unary<Unary::RINT>},
    {"negate", 1, "", unary<Unary::NEGATE>},
    {"bit_invert", 1, "", unary<Unary::BIT_INVERT>},
    {"bit_count", 1, "", unary<Unary::BIT_COUNT>},
    {"not", 1, "", unary<Unary::NOT>},
    {"is_null", 1, "", of_column<cudf::is_null>},
    {"is_valid", 1, "", of_column<cudf::is_valid>},
    {"is_nan", 1, "", of_column<cudf::is_nan>},
    {"is_not_nan", 1, "", of_column<cudf::is_not_nan>},
    {"cast", 1, "", cast_values},
    {"bit_cast", 1, "", cast_bits},
    {"round", 1, "decimals mode", round_values},
    {"round_decimal", 1, "decimals mode", round_exactly},
    {"nans_to_nulls", 1, "", of_column<cudf::column_nans_to_nulls>},
    {"normalize_nans_and_zeros", 1, "", of_column<cudf::normalize_nans_and_zeros>},
    {"null", 0, "", all_null},
};

}  // namespace

std::span<Primitive const> unary_primitives() {
    return unary_table;
}

}  // namespace rapidsmpf::compute

// Operations of two values, and what chooses among values.
#include <variant>

#include <cudf/binaryop.hpp>
#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/replace.hpp>
#include <cudf/scalar/scalar_factories.hpp>
#include <cudf/search.hpp>
#include <cudf/utilities/traits.hpp>

#include "compute/functions.hpp"

namespace rapidsmpf::compute {

namespace {

using Binary = cudf::binary_operator;

template <Binary op>
ColumnPtr binary(Call& call) {
    auto const* const left = call.constant(0);
    auto const* const right = call.constant(1);
    if (left != nullptr && right == nullptr) {
        return cudf::binary_operation(*left, call.column(1), op, call.type(), call.stream(), call.mr());
    }
    if (right != nullptr) {
        return cudf::binary_operation(call.column(0), *right, op, call.type(), call.stream(), call.mr());
    }
    return cudf::binary_operation(call.column(0), call.column(1), op, call.type(), call.stream(), call.mr());
}

ColumnPtr remainder_of_divisor_sign(Call& call) {
    auto remainder = binary<Binary::MOD>(call);
    if (cudf::is_unsigned(call.type())) {
        return remainder;
    }
    // libcudf's PYMOD adds the divisor to every remainder and divides again: sums beyond the type, and rounding, are wrong.
    auto const stream = call.stream();
    auto const mr = call.mr();
    auto const zero = cudf::make_default_constructed_scalar(call.type(), stream, mr);
    zero->set_valid_async(true, stream);
    auto const bool8 = cudf::data_type{cudf::type_id::BOOL8};
    auto const is_negative = [&](cudf::column_view const& values) {
        return cudf::binary_operation(values, *zero, Binary::LESS, bool8, stream, mr);
    };
    auto const* const divisor = call.constant(1);
    auto const repeated =
        divisor == nullptr ? nullptr : cudf::make_column_from_scalar(*divisor, call.rows(), stream, mr);
    auto const divisors = repeated ? repeated->view() : call.column(1);
    auto const other_sign = cudf::binary_operation(
        is_negative(remainder->view())->view(), is_negative(divisors)->view(), Binary::NOT_EQUAL, bool8,
        stream, mr);
    auto const not_zero =
        cudf::binary_operation(remainder->view(), *zero, Binary::NOT_EQUAL, bool8, stream, mr);
    auto const moves =
        cudf::binary_operation(other_sign->view(), not_zero->view(), Binary::LOGICAL_AND, bool8, stream, mr);
    auto const moved =
        cudf::binary_operation(remainder->view(), divisors, Binary::ADD, call.type(), stream, mr);
    return cudf::copy_if_else(moved->view(), remainder->view(), moves->view(), stream, mr);
}

ColumnPtr choose_values(Call& call) {
    auto const mask = call.column(0);
    auto const* const then = call.constant(1);
    auto const* const other = call.constant(2);
    if (then != nullptr && other != nullptr) {
        return cudf::copy_if_else(*then, *other, mask, call.stream(), call.mr());
    }
    if (then != nullptr) {
        return cudf::copy_if_else(*then, call.column(2), mask, call.stream(), call.mr());
    }
    if (other != nullptr) {
        return cudf::copy_if_else(call.column(1), *other, mask, call.stream(), call.mr());
    }
    return cudf::copy_if_else(call.column(1), call.column(2), mask, call.stream(), call.mr());
}

ColumnPtr fill_nulls(Call& call) {
    auto const values = call.column(0);
    if (auto const* const replacement = call.constant(1)) {
        return cudf::replace_nulls(values, *replacement, call.stream(), call.mr());
    }
    return cudf::replace_nulls(values, call.column(1), call.stream(), call.mr());
}

ColumnPtr contains_in_set(Call& call) {
    return cudf::contains(call.values(0), call.column(1), call.stream(), call.mr());
}

ColumnPtr clamp_values(Call& call) {
    return cudf::clamp(call.column(0), *call.constant(1), *call.constant(2), call.stream(), call.mr());
}

constexpr Primitive binary_table[]{
    {"add", 2, "", binary<Binary::ADD>},
    {"sub", 2, "", binary<Binary::SUB>},
    {"mul", 2, "", binary<Binary::MUL>},
    {"div", 2, "", binary<Binary::DIV>},
    {"true_div", 2, "", binary<Binary::TRUE_DIV>},
    {"floor_div", 2, "", binary<Binary::FLOOR_DIV>},
    {"mod", 2, "", binary<Binary::MOD>},
    {"pymod", 2, "", remainder_of_divisor_sign},
    {"pow", 2, "", binary<Binary::POW>},
    {"int_pow", 2, "", binary<Binary::INT_POW>},
    {"atan2", 2, "", binary<Binary::ATAN2>},
    {"equal", 2, "", binary<Binary::EQUAL>},
    {"not_equal", 2, "", binary<Binary::NOT_EQUAL>},
    {"less", 2, "", binary<Binary::LESS>},
    {"greater", 2, "", binary<Binary::GREATER>},
    {"less_equal", 2, "", binary<Binary::LESS_EQUAL>},
    {"greater_equal", 2, "", binary<Binary::GREATER_EQUAL>},
    {"null_equals", 2, "", binary<Binary::NULL_EQUALS>},
    {"null_not_equals", 2, "", binary<Binary::NULL_NOT_EQUALS>},
    {"null_max", 2, "", binary<Binary::NULL_MAX>},
    {"null_min", 2, "", binary<Binary::NULL_MIN>},
    {"null_logical_and", 2, "", binary<Binary::NULL_LOGICAL_AND>},
    {"null_logical_or", 2, "", binary<Binary::NULL_LOGICAL_OR>},
    {"bitwise_and", 2, "", binary<Binary::BITWISE_AND>},
    {"bitwise_or", 2, "", binary<Binary::BITWISE_OR>},
    {"bitwise_xor", 2, "", binary<Binary::BITWISE_XOR>},
    {"shift_left", 2, "", binary<Binary::SHIFT_LEFT>},
    {"shift_right", 2, "", binary<Binary::SHIFT_RIGHT>},
    {"copy_if_else", 3, "", choose_values},
    {"replace_nulls", 2, "", fill_nulls},
    {"contains", 2, "", contains_in_set, nullptr, Constants::set_first},
    {"clamp", 3, "", clamp_values, nullptr, Constants::limits_last},
};

}  // namespace

std::span<Primitive const> binary_primitives() {
    return binary_table;
}

}  // namespace rapidsmpf::compute

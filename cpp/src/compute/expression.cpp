#include "compute/expression.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <variant>

#include <cudf/binaryop.hpp>
#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/datetime.hpp>
#include <cudf/filling.hpp>
#include <cudf/interop.hpp>
#include <cudf/replace.hpp>
#include <cudf/round.hpp>
#include <cudf/search.hpp>
#include <cudf/strings/attributes.hpp>
#include <cudf/strings/contains.hpp>
#include <cudf/strings/find.hpp>
#include <cudf/strings/regex/regex_program.hpp>
#include <cudf/strings/slice.hpp>
#include <cudf/transform.hpp>
#include <cudf/unary.hpp>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::compute {
namespace {
using B = cudf::binary_operator;
using U = cudf::unary_operator;
std::map<std::string, B> const binary{
    {"add", B::ADD},
    {"sub", B::SUB},
    {"mul", B::MUL},
    {"div", B::DIV},
    {"true_div", B::TRUE_DIV},
    {"floor_div", B::FLOOR_DIV},
    {"mod", B::MOD},
    {"pymod", B::PYMOD},
    {"pow", B::POW},
    {"int_pow", B::INT_POW},
    {"atan2", B::ATAN2},
    {"equal", B::EQUAL},
    {"not_equal", B::NOT_EQUAL},
    {"less", B::LESS},
    {"greater", B::GREATER},
    {"less_equal", B::LESS_EQUAL},
    {"greater_equal", B::GREATER_EQUAL},
    {"null_equals", B::NULL_EQUALS},
    {"null_not_equals", B::NULL_NOT_EQUALS},
    {"null_max", B::NULL_MAX},
    {"null_min", B::NULL_MIN},
    {"null_logical_and", B::NULL_LOGICAL_AND},
    {"null_logical_or", B::NULL_LOGICAL_OR},
    {"bitwise_and", B::BITWISE_AND},
    {"bitwise_or", B::BITWISE_OR},
    {"bitwise_xor", B::BITWISE_XOR},
    {"shift_left", B::SHIFT_LEFT},
    {"shift_right", B::SHIFT_RIGHT}};
std::map<std::string, U> const unary{
    {"sin", U::SIN},
    {"cos", U::COS},
    {"tan", U::TAN},
    {"exp", U::EXP},
    {"log", U::LOG},
    {"sqrt", U::SQRT},
    {"cbrt", U::CBRT},
    {"ceil", U::CEIL},
    {"floor", U::FLOOR},
    {"abs", U::ABS},
    {"rint", U::RINT},
    {"negate", U::NEGATE},
    {"bit_invert", U::BIT_INVERT},
    {"not", U::NOT}};
std::string const& text(Expression const& e, std::size_t i) {
    return std::get<std::string>(e.options.at(i));
}
std::int64_t number(Expression const& e, std::size_t i) {
    return std::get<std::int64_t>(e.options.at(i));
}
}  // namespace

Expressions::Expressions(Program const& program, Work& work, bool) : expressions_{program.expressions} {
    constants_.resize(expressions_.size());
    scalars_.resize(expressions_.size());
    for (std::size_t i = 0; i < expressions_.size(); ++i) {
        auto const& e = expressions_[i];
        if (e.kind != Expression::Kind::constant)
            continue;
        auto const& table = program.constants.at(static_cast<std::size_t>(e.index));
        ArrowSchemaOwner schema;
        ArrowArrayOwner array;
        table.export_schema(schema.out());
        table.export_array(array.out());
        auto device = cudf::from_arrow(schema.get(), array.get(), work.stream(), work.mr());
        auto column = std::move(device->release().front());
        auto const type = to_cudf(e.type);
        if (column->type() != type)
            column = cudf::cast(column->view(), type, work.stream(), work.mr());
        if (column->size() == 1)
            scalars_[i] = cudf::get_element(column->view(), 0, work.stream(), work.mr());
        constants_[i] = std::move(column);
    }
    work.synchronize();
}
void Expressions::count(std::int32_t id, std::vector<Value>& values) const {
    auto& v = values[static_cast<std::size_t>(id)];
    if (v.uses++ == 0)
        for (auto a : expressions_[static_cast<std::size_t>(id)].args)
            count(a, values);
}
ColumnPtr Expressions::take(
    std::int32_t id, std::vector<Value>& values, cudf::size_type rows, Work& work) const {
    auto& v = values[static_cast<std::size_t>(id)];
    --v.uses;
    if (v.scalar != nullptr)
        return cudf::make_column_from_scalar(*v.scalar, rows, work.stream(), work.mr());
    if (v.owned && v.uses <= 0)
        return std::move(v.owned);
    return std::make_unique<cudf::column>(v.view, work.stream(), work.mr());
}
void Expressions::compute(
    std::int32_t id, cudf::table_view rows, std::vector<Value>& values, Work& work) const {
    auto const i = static_cast<std::size_t>(id);
    auto& v = values[i];
    if (v.done)
        return;
    auto const& e = expressions_[i];
    switch (e.kind) {
        case Expression::Kind::column:
            v.view = rows.column(e.index);
            break;
        case Expression::Kind::constant:
            if (scalars_[i])
                v.scalar = scalars_[i].get();
            v.view = constants_[i]->view();
            break;
        case Expression::Kind::call:
            for (auto a : e.args)
                compute(a, rows, values, work);
            v.owned = call(e, values, rows.num_rows(), work);
            if (v.owned->type() != to_cudf(e.type) && cudf::is_fixed_width(v.owned->type()))
                v.owned = cudf::cast(v.owned->view(), to_cudf(e.type), work.stream(), work.mr());
            v.view = v.owned->view();
            for (auto a : e.args) {
                auto& u = values[static_cast<std::size_t>(a)];
                if (--u.uses <= 0)
                    u.owned.reset();
            }
            break;
    }
    v.done = true;
}
ColumnPtr Expressions::call(
    Expression const& e, std::vector<Value>& values, cudf::size_type n, Work& work) const {
    auto const s = work.stream();
    auto const mr = work.mr();
    auto const type = to_cudf(e.type);
    std::vector<ColumnPtr> made;
    auto arg = [&](std::size_t k) -> Value& { return values[static_cast<std::size_t>(e.args.at(k))]; };
    auto column = [&](std::size_t k) -> cudf::column_view {
        auto& v = arg(k);
        if (v.scalar == nullptr)
            return v.view;
        made.push_back(cudf::make_column_from_scalar(*v.scalar, n, s, mr));
        return made.back()->view();
    };
    auto str_scalar = [&](std::size_t k) -> cudf::string_scalar const& {
        if (arg(k).scalar == nullptr)
            throw std::invalid_argument(e.op + ": a constant text is needed");
        return static_cast<cudf::string_scalar const&>(*arg(k).scalar);
    };
    if (auto b = binary.find(e.op); b != binary.end()) {
        auto &l = arg(0), &r = arg(1);
        if (l.scalar != nullptr && r.scalar == nullptr)
            return cudf::binary_operation(*l.scalar, r.view, b->second, type, s, mr);
        if (r.scalar != nullptr) {
            auto c = column(0);
            return cudf::binary_operation(c, *r.scalar, b->second, type, s, mr);
        }
        return cudf::binary_operation(l.view, r.view, b->second, type, s, mr);
    }
    if (auto u = unary.find(e.op); u != unary.end())
        return cudf::unary_operation(column(0), u->second, s, mr);
    if (e.op == "is_null")
        return cudf::is_null(column(0), s, mr);
    if (e.op == "is_valid")
        return cudf::is_valid(column(0), s, mr);
    if (e.op == "is_nan")
        return cudf::is_nan(column(0), s, mr);
    if (e.op == "is_not_nan")
        return cudf::is_not_nan(column(0), s, mr);
    if (e.op == "cast") {
        auto c = column(0);
        if (c.type() == type)
            return std::make_unique<cudf::column>(c, s, mr);
        return cudf::cast(c, type, s, mr);
    }
    if (e.op == "bit_cast")
        return std::make_unique<cudf::column>(cudf::bit_cast(column(0), type), s, mr);
    if (e.op == "round_decimal")
        return cudf::round_decimal(
            column(0), static_cast<std::int32_t>(number(e, 0)),
            text(e, 1) == "half_even" ? cudf::rounding_method::HALF_EVEN : cudf::rounding_method::HALF_UP, s,
            mr);
    if (e.op == "copy_if_else") {
        auto &t = arg(1), &f = arg(2);
        auto m = column(0);
        if (t.scalar && f.scalar)
            return cudf::copy_if_else(*t.scalar, *f.scalar, m, s, mr);
        if (t.scalar)
            return cudf::copy_if_else(*t.scalar, f.view, m, s, mr);
        if (f.scalar)
            return cudf::copy_if_else(t.view, *f.scalar, m, s, mr);
        return cudf::copy_if_else(t.view, f.view, m, s, mr);
    }
    if (e.op == "replace_nulls") {
        auto c = column(0);
        if (arg(1).scalar)
            return cudf::replace_nulls(c, *arg(1).scalar, s, mr);
        return cudf::replace_nulls(c, arg(1).view, s, mr);
    }
    if (e.op == "nans_to_nulls")
        return cudf::column_nans_to_nulls(column(0), s, mr);
    if (e.op == "normalize_nans_and_zeros")
        return cudf::normalize_nans_and_zeros(column(0), s, mr);
    if (e.op == "contains")
        return cudf::contains(arg(0).view, column(1), s, mr);
    if (e.op == "null")
        return null_column(type, n, work);
    if (e.op == "str.length")
        return cudf::strings::count_characters(cudf::strings_column_view{column(0)}, s, mr);
    if (e.op == "str.contains") {
        auto p = cudf::strings::regex_program::create(text(e, 0));
        return cudf::strings::contains_re(cudf::strings_column_view{column(0)}, *p, s, mr);
    }
    if (e.op == "str.has")
        return cudf::strings::contains(cudf::strings_column_view{column(0)}, str_scalar(1), s, mr);
    if (e.op == "str.starts_with")
        return cudf::strings::starts_with(cudf::strings_column_view{column(0)}, str_scalar(1), s, mr);
    if (e.op == "str.ends_with")
        return cudf::strings::ends_with(cudf::strings_column_view{column(0)}, str_scalar(1), s, mr);
    if (e.op == "str.slice") {
        std::optional<cudf::size_type> stop;
        if (number(e, 1) >= 0)
            stop = static_cast<cudf::size_type>(number(e, 1));
        return cudf::strings::slice_strings(
            cudf::strings_column_view{column(0)},
            std::optional<cudf::size_type>{static_cast<cudf::size_type>(number(e, 0))}, stop, std::nullopt, s,
            mr);
    }
    if (e.op == "dt.component") {
        static std::map<std::string, cudf::datetime::datetime_component> const c{
            {"year", cudf::datetime::datetime_component::YEAR},
            {"month", cudf::datetime::datetime_component::MONTH},
            {"day", cudf::datetime::datetime_component::DAY}};
        return cudf::datetime::extract_datetime_component(column(0), c.at(text(e, 0)), s, mr);
    }
    throw std::invalid_argument("there is no primitive '" + e.op + "'");
}
std::vector<ColumnPtr> Expressions::evaluate(
    std::span<std::int32_t const> ids, cudf::table_view rows, Work& work) const {
    std::vector<Value> values(expressions_.size());
    for (auto id : ids)
        count(id, values);
    for (auto id : ids)
        compute(id, rows, values, work);
    std::vector<ColumnPtr> out;
    for (auto id : ids)
        out.push_back(take(id, values, rows.num_rows(), work));
    return out;
}
ColumnPtr Expressions::mask(std::int32_t id, cudf::table_view rows, Work& work) const {
    return std::move(evaluate(std::span{&id, 1}, rows, work).front());
}
TablePtr Expressions::project(std::span<std::int32_t const> ids, TablePtr rows, Work& work) const {
    std::vector<Value> values(expressions_.size());
    for (auto id : ids)
        count(id, values);
    auto const n = rows->num_rows();
    for (auto id : ids)
        compute(id, rows->view(), values, work);
    std::vector<ColumnPtr> out(ids.size());
    std::vector<int> left(static_cast<std::size_t>(rows->num_columns()), 0);
    for (auto id : ids) {
        auto const& e = expressions_[static_cast<std::size_t>(id)];
        if (e.kind == Expression::Kind::column)
            ++left[static_cast<std::size_t>(e.index)];
    }
    for (std::size_t k = 0; k < ids.size(); ++k) {
        auto const& e = expressions_[static_cast<std::size_t>(ids[k])];
        if (e.kind != Expression::Kind::column || left[static_cast<std::size_t>(e.index)] > 1) {
            if (e.kind == Expression::Kind::column)
                --left[static_cast<std::size_t>(e.index)];
            out[k] = take(ids[k], values, n, work);
        }
    }
    values.clear();
    auto columns = rows->release();
    for (std::size_t k = 0; k < ids.size(); ++k)
        if (!out[k])
            out[k] = std::move(
                columns[static_cast<std::size_t>(expressions_[static_cast<std::size_t>(ids[k])].index)]);
    return std::make_unique<cudf::table>(std::move(out));
}
}  // namespace rapidsmpf::compute

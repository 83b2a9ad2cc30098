// Expressions on a GPU: every primitive, with nulls, constants on either side and chunks without rows.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/functions.hpp"
#include "compute/gpu_support.hpp"

namespace rapidsmpf::testing::expressions {
namespace {

using compute::DataType;
using compute::Expression;
using Cells = std::vector<std::string>;

// Numbers of cudf::type_id.
constexpr DataType int8_{1, 0};
constexpr DataType int32_{3, 0};
constexpr DataType int64_{4, 0};
constexpr DataType float64_{10, 0};
constexpr DataType bool_{11, 0};
constexpr DataType days_{12, 0};
constexpr DataType seconds_{13, 0};
constexpr DataType text_{23, 0};
constexpr DataType decimal_{27, -2};

Integers const left{7, -7, 0, std::nullopt, 12};
Integers const right{2, 2, 5, 3, std::nullopt};
Reals const reals{0.5, -2.5, std::nan(""), std::nullopt, 0.25};
Reals const powers{0.5, 1.5, 1, 2, std::nullopt};

// The five rows that expressions are computed of.
enum ColumnIndex : std::int32_t { a, b, x, y, t, n, d, ticks, lists, structs };

// Lists of integers [1, null, 5], [], [9, -2], null, [4], and structs of an integer and a text.
void add_nested(std::vector<Field>& fields, std::vector<Column>& columns) {
    static std::int64_t const elements[]{1, 0, 5, 9, -2, 4};
    static std::uint8_t const valid_elements[]{0b111101};
    static std::int32_t const offsets[]{0, 3, 3, 5, 5, 6};
    static std::uint8_t const valid_lists[]{0b10111};
    static std::int64_t const numbers[]{10, 20, 30, 40, 50};
    static std::uint8_t const valid_numbers[]{0b01111};
    static std::uint8_t const valid_structs[]{0b11011};

    auto const integers = [](std::int64_t const* values, std::int64_t length, std::uint8_t const* validity) {
        Column column;
        column.length = length;
        column.null_count = 1;
        column.validity = validity;
        column.values = reinterpret_cast<std::byte const*>(values);
        return column;
    };
    Column list;
    list.length = 5;
    list.null_count = 1;
    list.validity = valid_lists;
    list.offsets = offsets;
    list.children = {integers(elements, 6, valid_elements)};
    fields.emplace_back("lists", "+l", ARROW_FLAG_NULLABLE, std::vector<Field>{Field{"item", "l"}});
    columns.push_back(std::move(list));

    Column structure;
    structure.length = 5;
    structure.null_count = 1;
    structure.validity = valid_structs;
    structure.children = {integers(numbers, 5, valid_numbers)};
    fields.emplace_back("structs", "+s", ARROW_FLAG_NULLABLE, std::vector<Field>{Field{"number", "l"}});
    columns.push_back(std::move(structure));
}

Table rows_to_compute() {
    auto const plain = TableBuilder{}
                           .add(left)
                           .add(right)
                           .add(reals)
                           .add(powers)
                           .add(Texts{"Apple pie", "é", "", std::nullopt, "12"})
                           .add(Texts{"12", "-3", "x", std::nullopt, "1.5"})
                           .add_decimals({150, -250, 5, std::nullopt, 1000})
                           .add(Integers{0, 86'399, 951'827'696, std::nullopt, -1})
                           .build();
    auto fields = plain.schema()->fields();
    auto columns = plain.columns();
    add_nested(fields, columns);
    return Table{std::make_shared<Schema const>(fields), columns, plain.num_rows(), plain.owner()};
}

// Writes the expressions of a program.
class Writer {
  public:
    std::int32_t column(ColumnIndex column_index, DataType type) {
        return add({Expression::Kind::column, column_index, "", {}, type, {}});
    }
    std::int32_t integers(ColumnIndex column_index) { return column(column_index, int64_); }
    std::int32_t texts(ColumnIndex column_index) { return column(column_index, text_); }
    std::int32_t reals(ColumnIndex column_index) { return column(column_index, float64_); }

    std::int32_t constant(Table table, DataType type) {
        program.constants.push_back(std::move(table));
        auto const index = static_cast<std::int32_t>(program.constants.size()) - 1;
        return add({Expression::Kind::constant, index, "", {}, type, {}});
    }
    std::int32_t set(Integers const& values) { return constant(TableBuilder{}.add(values).build(), int64_); }
    std::int32_t integer(std::optional<std::int64_t> value, DataType type = int64_) {
        return constant(TableBuilder{}.add(Integers{value}).build(), type);
    }
    std::int32_t text(std::optional<std::string> value) {
        return constant(TableBuilder{}.add(Texts{std::move(value)}).build(), text_);
    }

    std::int32_t call(
        std::string op, DataType type, std::vector<std::int32_t> args,
        std::vector<compute::Option> options = {}) {
        return add({Expression::Kind::call, 0, std::move(op), std::move(args), type, std::move(options)});
    }
    // As numbers that rows_of() can show.
    std::int32_t as_integer(std::int32_t value) { return call("cast", int64_, {value}); }
    std::int32_t truth(
        std::string op, std::vector<std::int32_t> args, std::vector<compute::Option> options = {}) {
        return as_integer(call(std::move(op), bool_, std::move(args), std::move(options)));
    }

    // Whether a is above 0: true, false, false, null, true.
    std::int32_t mask() { return call("greater", bool_, {integers(a), integer(0)}); }
    std::int32_t times() { return call("bit_cast", seconds_, {integers(ticks)}); }
    std::int32_t as_ticks(std::int32_t value) { return call("bit_cast", int64_, {value}); }

    compute::Program program;

  private:
    std::int32_t add(Expression expression) {
        program.expressions.push_back(std::move(expression));
        return static_cast<std::int32_t>(program.expressions.size()) - 1;
    }
};

struct Case {
    std::string name;
    std::function<std::int32_t(Writer&)> write;
    Cells expected;
};

std::string shown(double value) {
    if (std::isnan(value)) {
        return "nan";
    }
    char digits[64];
    std::snprintf(digits, sizeof(digits), "%.6g", value);
    return digits;
}

void add_binary(std::vector<Case>& cases) {
    auto const integers = [&](std::string const& op, Cells expected) {
        cases.push_back(
            {op, [op](Writer& w) { return w.call(op, int64_, {w.integers(a), w.integers(b)}); },
             std::move(expected)});
    };
    integers("add", {"9", "-5", "5", "null", "null"});
    integers("sub", {"5", "-9", "-5", "null", "null"});
    integers("mul", {"14", "-14", "0", "null", "null"});
    integers("div", {"3", "-3", "0", "null", "null"});
    integers("floor_div", {"3", "-4", "0", "null", "null"});
    integers("mod", {"1", "-1", "0", "null", "null"});
    integers("pymod", {"1", "1", "0", "null", "null"});
    integers("int_pow", {"49", "49", "0", "null", "null"});
    integers("null_max", {"7", "2", "5", "3", "12"});
    integers("null_min", {"2", "-7", "0", "3", "12"});
    integers("bitwise_and", {"2", "0", "0", "null", "null"});
    integers("bitwise_or", {"7", "-5", "5", "null", "null"});
    integers("bitwise_xor", {"5", "-5", "5", "null", "null"});
    integers("shift_left", {"28", "-28", "0", "null", "null"});
    integers("shift_right", {"1", "-2", "0", "null", "null"});
    cases.push_back(
        {"true_div",
         [](Writer& w) { return w.call("true_div", float64_, {w.integers(a), w.integers(b)}); },
         {"3.5", "-3.5", "0", "null", "null"}});
    using Function = double (*)(double, double);
    std::vector<std::pair<std::string, Function>> const functions{{"pow", std::pow}, {"atan2", std::atan2}};
    for (auto const& [op, function] : functions) {
        Cells expected;
        for (std::size_t i = 0; i < reals.size(); ++i) {
            expected.push_back(reals[i] && powers[i] ? shown(function(*reals[i], *powers[i])) : "null");
        }
        cases.push_back(
            {op, [op = op](Writer& w) { return w.call(op, float64_, {w.reals(x), w.reals(y)}); }, expected});
    }
    auto const comparison = [&](std::string const& op, Cells expected) {
        cases.push_back(
            {op, [op](Writer& w) { return w.truth(op, {w.integers(a), w.integers(b)}); },
             std::move(expected)});
    };
    comparison("equal", {"0", "0", "0", "null", "null"});
    comparison("not_equal", {"1", "1", "1", "null", "null"});
    comparison("less", {"0", "1", "1", "null", "null"});
    comparison("greater", {"1", "0", "0", "null", "null"});
    comparison("less_equal", {"0", "1", "1", "null", "null"});
    comparison("greater_equal", {"1", "0", "0", "null", "null"});
    comparison("null_not_equals", {"1", "1", "1", "1", "1"});
    cases.push_back(
        {"null_equals",
         [](Writer& w) { return w.truth("null_equals", {w.integers(a), w.integers(a)}); },
         {"1", "1", "1", "1", "1"}});
    auto const logic = [&](std::string const& op, Cells expected) {
        cases.push_back(
            {op,
             [op](Writer& w) {
                 auto const large = w.call("greater", bool_, {w.integers(b), w.integer(2)});
                 return w.truth(op, {w.mask(), large});
             },
             std::move(expected)});
    };
    logic("null_logical_and", {"0", "0", "0", "null", "null"});
    logic("null_logical_or", {"1", "0", "1", "1", "1"});
    cases.push_back(
        {"add of decimals",
         [](Writer& w) { return w.call("add", decimal_, {w.column(d, decimal_), w.column(d, decimal_)}); },
         {"300", "-500", "10", "null", "2000"}});
}

void add_constants(std::vector<Case>& cases) {
    cases.push_back(
        {"constant on the right",
         [](Writer& w) { return w.call("sub", int64_, {w.integers(a), w.integer(10)}); },
         {"-3", "-17", "-10", "null", "2"}});
    cases.push_back(
        {"constant on the left",
         [](Writer& w) { return w.call("sub", int64_, {w.integer(10), w.integers(a)}); },
         {"3", "17", "10", "null", "-2"}});
    cases.push_back(
        {"constants on both sides",
         [](Writer& w) { return w.call("sub", int64_, {w.integer(10), w.integer(4)}); },
         {"6", "6", "6", "6", "6"}});
    cases.push_back(
        {"constant null",
         [](Writer& w) { return w.call("add", int64_, {w.integers(a), w.integer(std::nullopt)}); },
         {"null", "null", "null", "null", "null"}});
    cases.push_back({"constant alone", [](Writer& w) { return w.integer(5); }, {"5", "5", "5", "5", "5"}});
    cases.push_back(
        {"constant text alone",
         [](Writer& w) { return w.text("five"); },
         {"five", "five", "five", "five", "five"}});
    cases.push_back(
        {"constant of another type",
         [](Writer& w) { return w.call("add", decimal_, {w.column(d, decimal_), w.integer(1, decimal_)}); },
         {"250", "-150", "105", "null", "1100"}});
}

void add_choices(std::vector<Case>& cases) {
    cases.push_back(
        {"copy_if_else",
         [](Writer& w) { return w.call("copy_if_else", int64_, {w.mask(), w.integers(a), w.integers(b)}); },
         {"7", "2", "5", "3", "12"}});
    cases.push_back(
        {"copy_if_else of constants",
         [](Writer& w) { return w.call("copy_if_else", int64_, {w.mask(), w.integer(1), w.integer(2)}); },
         {"1", "2", "2", "2", "1"}});
    cases.push_back(
        {"copy_if_else or a constant",
         [](Writer& w) { return w.call("copy_if_else", int64_, {w.mask(), w.integers(a), w.integer(0)}); },
         {"7", "0", "0", "0", "12"}});
    cases.push_back(
        {"copy_if_else of a constant",
         [](Writer& w) { return w.call("copy_if_else", int64_, {w.mask(), w.integer(0), w.integers(b)}); },
         {"0", "2", "5", "3", "0"}});
    cases.push_back(
        {"copy_if_else by a constant",
         [](Writer& w) {
             return w.call("copy_if_else", int64_, {w.integer(1, bool_), w.integers(a), w.integers(b)});
         },
         {"7", "-7", "0", "null", "12"}});
    cases.push_back(
        {"replace_nulls",
         [](Writer& w) { return w.call("replace_nulls", int64_, {w.integers(a), w.integers(b)}); },
         {"7", "-7", "0", "3", "12"}});
    cases.push_back(
        {"replace_nulls by a constant",
         [](Writer& w) { return w.call("replace_nulls", int64_, {w.integers(a), w.integer(1)}); },
         {"7", "-7", "0", "1", "12"}});
    auto const contains = [&](std::string name, Integers const& set, Cells expected) {
        cases.push_back(
            {std::move(name), [set](Writer& w) { return w.truth("contains", {w.set(set), w.integers(a)}); },
             std::move(expected)});
    };
    contains("contains", {12, 7, 5}, {"1", "0", "0", "null", "1"});
    contains("contains in one", {7}, {"1", "0", "0", "null", "0"});
    contains("contains in none", {}, {"0", "0", "0", "null", "0"});
    contains("contains in a null", {std::nullopt}, {"0", "0", "0", "null", "0"});
    cases.push_back(
        {"contains a constant",
         [](Writer& w) { return w.truth("contains", {w.set({1, 2}), w.integer(2)}); },
         {"1", "1", "1", "1", "1"}});
    cases.push_back(
        {"clamp",
         [](Writer& w) { return w.call("clamp", int64_, {w.integers(a), w.integer(-1), w.integer(8)}); },
         {"7", "-1", "0", "null", "8"}});
}

void add_unary(std::vector<Case>& cases) {
    using Function = double (*)(double);
    std::vector<std::pair<std::string, Function>> const functions{
        {"sin", std::sin},     {"cos", std::cos},       {"tan", std::tan},       {"arcsin", std::asin},
        {"arccos", std::acos}, {"arctan", std::atan},   {"sinh", std::sinh},     {"cosh", std::cosh},
        {"tanh", std::tanh},   {"arcsinh", std::asinh}, {"arccosh", std::acosh}, {"arctanh", std::atanh},
        {"exp", std::exp},     {"log", std::log},       {"sqrt", std::sqrt},     {"cbrt", std::cbrt},
        {"ceil", std::ceil},   {"floor", std::floor},   {"abs", std::fabs},      {"rint", std::rint}};
    for (auto const& [op, function] : functions) {
        Cells expected;
        for (auto const& value : reals) {
            expected.push_back(value ? shown(function(*value)) : "null");
        }
        cases.push_back({op, [op = op](Writer& w) { return w.call(op, float64_, {w.reals(x)}); }, expected});
    }
    auto const integers = [&](std::string const& op, DataType type, Cells expected) {
        cases.push_back(
            {op, [op, type](Writer& w) { return w.call(op, type, {w.integers(a)}); }, std::move(expected)});
    };
    integers("negate", int64_, {"-7", "7", "0", "null", "-12"});
    integers("bit_invert", int64_, {"-8", "6", "-1", "null", "-13"});
    integers("bit_count", int32_, {"3", "62", "0", "null", "2"});
    integers("cast", float64_, {"7", "-7", "0", "null", "12"});
    auto const truth = [&](std::string const& op, Cells expected) {
        cases.push_back({op, [op](Writer& w) { return w.truth(op, {w.reals(x)}); }, std::move(expected)});
    };
    truth("is_null", {"0", "0", "0", "1", "0"});
    truth("is_valid", {"1", "1", "1", "0", "1"});
    truth("is_nan", {"0", "0", "1", "0", "0"});
    truth("is_not_nan", {"1", "1", "0", "1", "1"});
    cases.push_back(
        {"not", [](Writer& w) { return w.truth("not", {w.mask()}); }, {"0", "1", "1", "null", "0"}});
    cases.push_back(
        {"bit_cast",
         [](Writer& w) { return w.call("bit_cast", float64_, {w.call("bit_cast", int64_, {w.reals(x)})}); },
         {"0.5", "-2.5", "nan", "null", "0.25"}});
    cases.push_back(
        {"round",
         [](Writer& w) { return w.call("round", float64_, {w.reals(y)}, {0, "half_even"}); },
         {"0", "2", "1", "2", "null"}});
    cases.push_back(
        {"round half up",
         [](Writer& w) { return w.call("round", float64_, {w.reals(y)}, {0, "half_up"}); },
         {"1", "2", "1", "2", "null"}});
    cases.push_back(
        {"round_decimal",
         [](Writer& w) { return w.call("round_decimal", {27, 0}, {w.column(d, decimal_)}, {0, "half_up"}); },
         {"2", "-3", "0", "null", "10"}});
    cases.push_back(
        {"round_decimal half even",
         [](Writer& w) {
             return w.call("round_decimal", {27, 0}, {w.column(d, decimal_)}, {0, "half_even"});
         },
         {"2", "-2", "0", "null", "10"}});
    cases.push_back(
        {"nans_to_nulls",
         [](Writer& w) { return w.call("nans_to_nulls", float64_, {w.reals(x)}); },
         {"0.5", "-2.5", "null", "null", "0.25"}});
    cases.push_back(
        {"normalize_nans_and_zeros",
         [](Writer& w) { return w.call("normalize_nans_and_zeros", float64_, {w.reals(x)}); },
         {"0.5", "-2.5", "nan", "null", "0.25"}});
    cases.push_back(
        {"null",
         [](Writer& w) { return w.call("null", text_, {}); },
         {"null", "null", "null", "null", "null"}});
}

void add_texts(std::vector<Case>& cases) {
    auto const gives = [&](std::string const& op, DataType type, std::vector<compute::Option> options,
                           Cells expected) {
        cases.push_back(
            {op, [=](Writer& w) { return w.call(op, type, {w.texts(t)}, options); }, std::move(expected)});
    };
    auto const truth = [&](std::string const& op, ColumnIndex column_index,
                           std::vector<compute::Option> options, Cells expected) {
        cases.push_back(
            {op, [=](Writer& w) { return w.truth(op, {w.texts(column_index)}, options); },
             std::move(expected)});
    };
    gives("str.length", int32_, {}, {"9", "1", "0", "null", "2"});
    gives("str.bytes", int32_, {}, {"9", "2", "0", "null", "2"});
    truth("str.contains", t, {"p+l"}, {"1", "0", "0", "null", "0"});
    truth("str.matches", t, {"pie"}, {"0", "0", "0", "null", "0"});
    gives("str.count", int32_, {"p"}, {"3", "0", "0", "null", "0"});
    truth("str.like", t, {"A%e", ""}, {"1", "0", "0", "null", "0"});
    gives("str.find", int32_, {"p"}, {"1", "-1", "-1", "null", "-1"});
    auto const target = [&](std::string const& op, std::optional<std::string> const& text, Cells expected) {
        cases.push_back(
            {op + " '" + text.value_or("null") + "'",
             [=](Writer& w) { return w.truth(op, {w.texts(t), w.text(text)}); }, std::move(expected)});
    };
    target("str.has", "pie", {"1", "0", "0", "null", "0"});
    target("str.has", std::nullopt, {"null", "null", "null", "null", "null"});
    target("str.starts_with", "A", {"1", "0", "0", "null", "0"});
    target("str.ends_with", "2", {"0", "0", "0", "null", "1"});
    auto const targets = [&](std::string const& op, Cells expected) {
        cases.push_back(
            {op + " of columns", [=](Writer& w) { return w.truth(op, {w.text("12.5"), w.texts(n)}); },
             std::move(expected)});
    };
    targets("str.has", {"1", "0", "0", "null", "0"});
    targets("str.starts_with", {"1", "0", "0", "null", "0"});
    targets("str.ends_with", {"0", "0", "0", "null", "0"});
    gives("str.upper", text_, {}, {"APPLE PIE", "É", "", "null", "12"});
    gives("str.lower", text_, {}, {"apple pie", "é", "", "null", "12"});
    gives("str.slice", text_, {1, 3}, {"pp", "", "", "null", "2"});
    gives("str.slice", text_, {1, -1}, {"pple pie", "", "", "null", "2"});
    cases.push_back(
        {"str.slice_columns",
         [](Writer& w) {
             return w.call(
                 "str.slice_columns", text_, {w.texts(t), w.integer(0, int32_), w.integer(2, int32_)});
         },
         {"Ap", "é", "", "null", "12"}});
    cases.push_back(
        {"str.concat",
         [](Writer& w) { return w.call("str.concat", text_, {w.texts(t), w.texts(n)}, {"-"}); },
         {"Apple pie-12", "é--3", "-x", "null", "12-1.5"}});
    cases.push_back(
        {"str.concat with a constant",
         [](Writer& w) { return w.call("str.concat", text_, {w.text(">"), w.texts(t)}, {""}); },
         {">Apple pie", ">é", ">", "null", ">12"}});
    gives("str.replace", text_, {"p", "P", 1}, {"APple pie", "é", "", "null", "12"});
    gives("str.replace", text_, {"p", "", -1}, {"Ale ie", "é", "", "null", "12"});
    gives("str.replace_re", text_, {"[0-9p]", "#", -1}, {"A##le #ie", "é", "", "null", "##"});
    gives("str.replace_re", text_, {"[0-9p]", "#", 1}, {"A#ple pie", "é", "", "null", "#2"});
    gives("str.strip", text_, {"both", "Ae"}, {"pple pi", "é", "", "null", "12"});
    gives("str.strip", text_, {"right", "Ae"}, {"Apple pi", "é", "", "null", "12"});
    gives("str.zfill", text_, {3}, {"Apple pie", "00é", "000", "null", "012"});
    gives("str.pad", text_, {3, "left", "*"}, {"Apple pie", "**é", "***", "null", "*12"});
    gives("str.pad", text_, {3, "right", "*"}, {"Apple pie", "é**", "***", "null", "12*"});
    gives("str.repeat", text_, {2}, {"Apple pieApple pie", "éé", "", "null", "1212"});
    gives("str.reverse", text_, {}, {"eip elppA", "é", "", "null", "21"});
    truth("str.is_integer", n, {}, {"1", "1", "0", "null", "0"});
    truth("str.is_integer", n, {std::int64_t{int8_.id}}, {"1", "1", "0", "null", "0"});
    truth("str.is_float", n, {}, {"1", "1", "0", "null", "1"});
    auto const numbers = [](Writer& w) { return w.call("str.from_integers", text_, {w.integers(a)}); };
    cases.push_back({"str.from_integers", numbers, {"7", "-7", "0", "null", "12"}});
    cases.push_back(
        {"str.to_integers",
         [=](Writer& w) { return w.call("str.to_integers", int64_, {numbers(w)}); },
         {"7", "-7", "0", "null", "12"}});
    cases.push_back(
        {"str.to_floats",
         [=](Writer& w) { return w.call("str.to_floats", float64_, {numbers(w)}); },
         {"7", "-7", "0", "null", "12"}});
    cases.push_back(
        {"str.from_booleans",
         [](Writer& w) { return w.call("str.from_booleans", text_, {w.mask()}); },
         {"true", "false", "false", "null", "true"}});
}

// 1970-01-01 00:00:00, the last second of that day, 2000-02-29 12:34:56, null, 1969-12-31 23:59:59.
void add_times(std::vector<Case>& cases) {
    std::string const format{"%Y-%m-%d"};
    auto const dates = [=](Writer& w) { return w.call("str.from_timestamps", text_, {w.times()}, {format}); };
    cases.push_back(
        {"str.from_timestamps", dates, {"1970-01-01", "1970-01-01", "2000-02-29", "null", "1969-12-31"}});
    cases.push_back(
        {"str.is_timestamp",
         [=](Writer& w) { return w.truth("str.is_timestamp", {dates(w)}, {format}); },
         {"1", "1", "1", "null", "1"}});
    cases.push_back(
        {"str.to_timestamps",
         [=](Writer& w) { return w.as_ticks(w.call("str.to_timestamps", seconds_, {dates(w)}, {format})); },
         {"0", "0", "951782400", "null", "-86400"}});
    auto const part = [&](std::string const& op, std::vector<compute::Option> options, Cells expected) {
        // INT16: the caller casts it.
        cases.push_back(
            {op, [=](Writer& w) { return w.call(op, int64_, {w.times()}, options); }, std::move(expected)});
    };
    part("dt.component", {"year"}, {"1970", "1970", "2000", "null", "1969"});
    part("dt.component", {"hour"}, {"0", "23", "12", "null", "23"});
    part("dt.component", {"weekday"}, {"4", "4", "2", "null", "3"});
    part("dt.day_of_year", {}, {"1", "1", "60", "null", "365"});
    part("dt.days_in_month", {}, {"31", "31", "29", "null", "31"});
    part("dt.quarter", {}, {"1", "1", "1", "null", "4"});
    cases.push_back(
        {"dt.last_day_of_month",
         [](Writer& w) {
             return w.call("bit_cast", int32_, {w.call("dt.last_day_of_month", days_, {w.times()})});
         },
         {"30", "30", "11016", "null", "-1"}});
    cases.push_back(
        {"dt.is_leap_year",
         [](Writer& w) { return w.truth("dt.is_leap_year", {w.times()}); },
         {"0", "0", "1", "null", "0"}});
    cases.push_back(
        {"dt.add_months",
         [](Writer& w) {
             return w.as_ticks(w.call("dt.add_months", seconds_, {w.times(), w.integer(1, int32_)}));
         },
         {"2678400", "2764799", "954333296", "null", "2678399"}});
    cases.push_back(
        {"dt.add_months of columns",
         [](Writer& w) {
             auto const months = w.call("cast", int32_, {w.integers(b)});
             return w.as_ticks(w.call("dt.add_months", seconds_, {w.times(), months}));
         },
         {"5097600", "5183999", "964874096", "null", "null"}});
    auto const floors = [&](std::string const& frequency, Cells expected) {
        cases.push_back(
            {"dt.floor " + frequency,
             [=](Writer& w) { return w.as_ticks(w.call("dt.floor", seconds_, {w.times()}, {frequency})); },
             std::move(expected)});
    };
    floors("day", {"0", "0", "951782400", "null", "-86400"});
    floors("hour", {"0", "82800", "951825600", "null", "-3600"});
}

void add_lists(std::vector<Case>& cases) {
    auto const gives = [&](std::string const& op, DataType type, std::vector<compute::Option> options,
                           Cells expected) {
        cases.push_back(
            {op, [=](Writer& w) { return w.call(op, type, {w.column(lists, {24, 0})}, options); },
             std::move(expected)});
    };
    gives("list.length", int32_, {}, {"3", "0", "2", "null", "1"});
    gives("list.get", int64_, {0}, {"1", "null", "9", "null", "4"});
    gives("list.get", int64_, {-1}, {"5", "null", "-2", "null", "4"});
    gives("list.sum", int64_, {}, {"6", "null", "7", "null", "4"});
    gives("list.min", int64_, {}, {"1", "null", "-2", "null", "4"});
    gives("list.max", int64_, {}, {"5", "null", "9", "null", "4"});
    cases.push_back(
        {"list.contains",
         [](Writer& w) { return w.truth("list.contains", {w.column(lists, {24, 0}), w.integer(5)}); },
         {"1", "0", "0", "null", "0"}});
    cases.push_back(
        {"list.contains of columns",
         [](Writer& w) { return w.truth("list.contains", {w.column(lists, {24, 0}), w.integers(b)}); },
         {"0", "0", "0", "null", "null"}});
    cases.push_back(
        {"struct.field",
         [](Writer& w) { return w.call("struct.field", int64_, {w.column(structs, {28, 0})}, {0}); },
         {"10", "20", "null", "40", "null"}});
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    add_binary(cases);
    add_constants(cases);
    add_choices(cases);
    add_unary(cases);
    add_texts(cases);
    add_times(cases);
    add_lists(cases);
    return cases;
}

// ---- Without a GPU

TEST(PrimitivesTest, EachHasACase) {
    std::set<std::string> called;
    for (auto const& given : all_cases()) {
        Writer writer;
        (void)given.write(writer);
        for (auto const& expression : writer.program.expressions) {
            if (expression.kind == Expression::Kind::call) {
                called.insert(expression.op);
                EXPECT_NO_THROW((void)compute::primitive_of(expression)) << given.name;
            }
        }
    }
    auto const names = compute::primitive_names();
    EXPECT_EQ(called, (std::set<std::string>{names.begin(), names.end()}));
    EXPECT_EQ(called.size(), names.size());
}

TEST(PrimitivesTest, WrongCallsAreErrors) {
    Writer writer;
    auto const column = writer.integers(a);
    std::vector<std::int32_t> const calls{
        writer.call("no_such", int64_, {column}),
        writer.call("add", int64_, {column}),
        writer.call("null", int64_, {column}),
        writer.call("str.concat", text_, {}, {","}),
        writer.call("round", float64_, {column}),
        writer.call("round", float64_, {column}, {0, "half_up", 1}),
        writer.call("round", float64_, {column}, {"half_up", 0}),
        writer.call("round", float64_, {column}, {0.5, "half_up"}),
        writer.call("str.is_integer", bool_, {column}, {"INT8"}),
        writer.call("str.is_integer", bool_, {column}, {1, 2}),
    };
    for (auto const id : calls) {
        auto const& call = writer.program.expressions[static_cast<std::size_t>(id)];
        EXPECT_THROW((void)compute::primitive_of(call), std::invalid_argument) << call.op;
    }
}

// ---- On a GPU

class ExpressionTest : public OperatorTest {
  protected:
    // The cells of columns, and that there are none of a chunk without rows.
    [[nodiscard]] Rows compute_columns(Writer writer, std::vector<std::int32_t> const& ids) {
        std::vector<DataType> types;
        for (auto const id : ids) {
            types.push_back(writer.program.expressions[static_cast<std::size_t>(id)].type);
        }
        compute::Hold hold;
        hold.in_order = true;
        auto const none = writer.call("null", bool_, {});
        auto program = writer.program;
        program.pipelines = {{compute::FromInput{0}, {compute::Project{ids}}, hold, types}};
        auto rows = rows_of(*runtime_->run(program, {reader_of(input_, 2)}));
        program.pipelines.front().steps.insert(
            program.pipelines.front().steps.begin(), compute::Filter{none});
        EXPECT_EQ(runtime_->run(program, {reader_of(input_, 2)})->num_rows(), 0);
        return rows;
    }

    Table input_{rows_to_compute()};
};

TEST_F(ExpressionTest, Primitives) {
    for (auto const& given : all_cases()) {
        SCOPED_TRACE(given.name);
        Writer writer;
        auto const id = given.write(writer);
        Rows rows;
        ASSERT_NO_THROW(rows = compute_columns(writer, {id}));
        Cells cells;
        for (auto const& row : rows) {
            cells.push_back(row.front());
        }
        EXPECT_EQ(cells, given.expected);
    }
}

TEST_F(ExpressionTest, WhatIsPassedOnIsReadToo) {
    Writer writer;
    auto const first = writer.integers(a);
    auto const doubled = writer.call("add", int64_, {first, first});
    auto const second = writer.integers(b);
    // The same column by another expression, and what reads it comes last.
    auto const again = writer.integers(a);
    auto const rows = compute_columns(writer, {first, again, second, first, doubled});
    Rows const expected{
        {"7", "7", "2", "7", "14"},
        {"-7", "-7", "2", "-7", "-14"},
        {"0", "0", "5", "0", "0"},
        {"null", "null", "3", "null", "null"},
        {"12", "12", "null", "12", "24"}};
    EXPECT_EQ(rows, expected);
}

TEST_F(ExpressionTest, WhatIsSharedIsKeptUntilItsLastUse) {
    Writer writer;
    auto const sum = writer.call("add", int64_, {writer.integers(a), writer.integer(1)});
    auto const square = writer.call("mul", int64_, {sum, sum});
    auto const fourth = writer.call("mul", int64_, {square, square});
    auto const rows = compute_columns(writer, {fourth, sum, square, sum});
    Rows const expected{
        {"4096", "8", "64", "8"},
        {"1296", "-6", "36", "-6"},
        {"1", "1", "1", "1"},
        {"null", "null", "null", "null"},
        {"28561", "13", "169", "13"}};
    EXPECT_EQ(rows, expected);
}

TEST_F(ExpressionTest, FiltersByExpressions) {
    Writer writer;
    auto const mask = writer.mask();
    compute::Hold hold;
    hold.in_order = true;
    std::vector<std::int32_t> const ids{writer.integers(a)};
    writer.program.pipelines = {
        {compute::FromInput{0}, {compute::Filter{mask}, compute::Project{ids}}, hold, {int64_}}};
    EXPECT_EQ(rows_of(*runtime_->run(writer.program, {reader_of(input_, 2)})), (Rows{{"7"}, {"12"}}));
}

// Before a chunk is read: the input has none.
TEST_F(ExpressionTest, WrongExpressionsAreErrorsAtTheStart) {
    std::vector<std::function<std::int32_t(Writer&)>> const wrong{
        [](Writer& w) { return w.call("no_such", int64_, {w.integers(a)}); },
        [](Writer& w) { return w.call("contains", bool_, {w.integers(a), w.integers(b)}); },
        [](Writer& w) { return w.call("clamp", int64_, {w.integers(a), w.integers(b), w.integer(1)}); },
        [](Writer& w) { return w.call("add", int64_, {w.integers(a), w.set({1, 2})}); },
        [](Writer& w) { return w.call("add", int64_, {w.integers(a), w.set({})}); },
    };
    for (auto const& write : wrong) {
        Writer writer;
        auto const id = write(writer);
        auto const type = writer.program.expressions[static_cast<std::size_t>(id)].type;
        writer.program.pipelines = {
            {compute::FromInput{0}, {compute::Project{{id}}}, compute::Hold{}, {type}}};
        EXPECT_THROW(
            (void)runtime_->run(writer.program, {reader_of(input_.slice(0, 0), 2)}), std::invalid_argument);
    }
}

}  // namespace
}  // namespace rapidsmpf::testing::expressions

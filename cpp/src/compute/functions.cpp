#include "compute/functions.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <variant>

#include <cudf/column/column_factories.hpp>

namespace rapidsmpf::compute {

namespace {

std::vector<std::span<Primitive const>> const& all_tables() {
    static std::vector<std::span<Primitive const>> const all{
        binary_primitives(), unary_primitives(), string_primitives(), time_primitives(), nested_primitives()};
    return all;
}

std::unordered_map<std::string_view, Primitive const*> const& primitives_by_name() {
    static auto const map = [] {
        std::unordered_map<std::string_view, Primitive const*> primitives;
        for (auto const& table : all_tables()) {
            for (auto const& primitive : table) {
                primitives.emplace(primitive.name, &primitive);
            }
        }
        return primitives;
    }();
    return map;
}

// Options of these names are whole numbers, all others texts.
constexpr std::array<std::string_view, 7> whole_numbers{"decimals", "start", "stop", "count",
                                                        "width",    "index", "type"};

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        auto const end = std::min(text.find(' '), text.size());
        words.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

void check_options(Primitive const& primitive, Expression const& call) {
    auto const names = words_of(primitive.options);
    auto const is_optional = [](std::string_view name) { return name.starts_with('['); };
    auto const needed = names.size() - static_cast<std::size_t>(std::ranges::count_if(names, is_optional));
    if (call.options.size() < needed || call.options.size() > names.size()) {
        throw std::invalid_argument(
            "'" + call.op + "' takes the options '" + std::string{primitive.options} + "', not "
            + std::to_string(call.options.size()));
    }
    for (std::size_t i = 0; i < call.options.size(); ++i) {
        auto name = names[i];
        if (is_optional(name)) {
            name = name.substr(1, name.size() - 2);
        }
        auto const whole = std::ranges::find(whole_numbers, name) != whole_numbers.end();
        auto const fits = whole ? std::holds_alternative<std::int64_t>(call.options[i])
                                : std::holds_alternative<std::string>(call.options[i]);
        if (!fits) {
            throw std::invalid_argument(
                "the option '" + std::string{name} + "' of '" + call.op + "' is a "
                + (whole ? "whole number" : "text"));
        }
    }
}

}  // namespace

std::vector<std::string_view> primitive_names() {
    std::vector<std::string_view> names;
    for (auto const& table : all_tables()) {
        for (auto const& primitive : table) {
            names.push_back(primitive.name);
        }
    }
    return names;
}

Primitive const& primitive_of(Expression const& call) {
    auto const found = primitives_by_name().find(call.op);
    if (found == primitives_by_name().end()) {
        throw std::invalid_argument("there is no primitive '" + call.op + "'");
    }
    auto const& primitive = *found->second;
    auto const takes_any = primitive.arity == any_number;
    auto const fits =
        takes_any ? !call.args.empty() : call.args.size() == static_cast<std::size_t>(primitive.arity);
    if (!fits) {
        throw std::invalid_argument(
            "'" + call.op + "' takes "
            + (takes_any ? std::string{"one argument or more"}
                         : std::to_string(primitive.arity) + " arguments")
            + ", not " + std::to_string(call.args.size()));
    }
    check_options(primitive, call);
    return primitive;
}

Call::Call(
    Expression const& expression, Prepared const& prepared, std::vector<Argument> arguments,
    cudf::size_type rows, Work& work)
    : expression_{expression},
      prepared_{prepared},
      arguments_{std::move(arguments)},
      type_{to_cudf(expression.type)},
      rows_{rows},
      work_{work} {}

cudf::column_view Call::column(std::size_t place) {
    auto const& argument = arguments_.at(place);
    if (argument.scalar == nullptr) {
        return argument.values;
    }
    filled_.push_back(cudf::make_column_from_scalar(*argument.scalar, rows_, stream(), mr()));
    return filled_.back()->view();
}

cudf::strings_column_view Call::texts(std::size_t place) {
    return cudf::strings_column_view{column(place)};
}

cudf::scalar const* Call::constant(std::size_t place) const {
    return arguments_.at(place).scalar;
}

cudf::column_view Call::values(std::size_t place) const {
    return arguments_.at(place).values;
}

std::int32_t Call::number(std::size_t option) const {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        std::get<std::int64_t>(expression_.options.at(option)), std::numeric_limits<std::int32_t>::min(),
        std::numeric_limits<std::int32_t>::max()));
}

std::string const& Call::text(std::size_t option) const {
    return std::get<std::string>(expression_.options.at(option));
}

}  // namespace rapidsmpf::compute

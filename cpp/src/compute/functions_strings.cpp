// Texts: lengths, parts, searches, regular expressions, forms, numbers as texts.
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include <cudf/null_mask.hpp>
#include <cudf/strings/attributes.hpp>
#include <cudf/strings/case.hpp>
#include <cudf/strings/combine.hpp>
#include <cudf/strings/contains.hpp>
#include <cudf/strings/convert/convert_booleans.hpp>
#include <cudf/strings/convert/convert_floats.hpp>
#include <cudf/strings/convert/convert_integers.hpp>
#include <cudf/strings/find.hpp>
#include <cudf/strings/padding.hpp>
#include <cudf/strings/repeat_strings.hpp>
#include <cudf/strings/replace.hpp>
#include <cudf/strings/replace_re.hpp>
#include <cudf/strings/reverse.hpp>
#include <cudf/strings/side_type.hpp>
#include <cudf/strings/slice.hpp>
#include <cudf/strings/strip.hpp>

#include "compute/functions.hpp"

namespace rapidsmpf::compute {

namespace {

namespace strings = cudf::strings;

// ---- What is made once for a call

void add_text(Prepared& prepared, std::string const& text, bool is_valid, Work& work) {
    prepared.texts.push_back(std::make_unique<cudf::string_scalar>(text, is_valid, work.stream(), work.mr()));
}

// The options that are texts, in their order.
Prepared prepare_texts(Expression const& call, Work& work) {
    Prepared prepared;
    for (auto const& option : call.options) {
        if (auto const* const text = std::get_if<std::string>(&option)) {
            add_text(prepared, *text, true, work);
        }
    }
    return prepared;
}

// The first option as a regular expression; those behind it as texts.
Prepared prepare_regex(Expression const& call, Work& work) {
    Prepared prepared;
    prepared.regex = strings::regex_program::create(std::get<std::string>(call.options.at(0)));
    for (std::size_t i = 1; i < call.options.size(); ++i) {
        if (auto const* const text = std::get_if<std::string>(&call.options[i])) {
            add_text(prepared, *text, true, work);
        }
    }
    return prepared;
}

// The separator, and null: what libcudf puts in the place of a null.
Prepared prepare_separator(Expression const& call, Work& work) {
    auto prepared = prepare_texts(call, work);
    add_text(prepared, "", false, work);
    return prepared;
}

Prepared prepare_truth(Expression const& /*call*/, Work& work) {
    Prepared prepared;
    add_text(prepared, "true", true, work);
    add_text(prepared, "false", true, work);
    return prepared;
}

// ---- Calls

// A function of texts alone.
template <
    ColumnPtr (*function)(cudf::strings_column_view const&, cuda::stream_ref, rmm::device_async_resource_ref)>
ColumnPtr of_texts(Call& call) {
    return function(call.texts(0), call.stream(), call.mr());
}

template <ColumnPtr (*function)(
    cudf::strings_column_view const&, strings::regex_program const&, cuda::stream_ref,
    rmm::device_async_resource_ref)>
ColumnPtr by_regex(Call& call) {
    return function(call.texts(0), call.regex(), call.stream(), call.mr());
}

// A function of texts, and a text for all or one for each.
template <typename Function>
ColumnPtr with_targets(Call& call, Function const& function) {
    auto const texts = call.texts(0);
    auto const* const constant = call.constant(1);
    // A null for all is no target that libcudf takes; in a column it is.
    if (constant != nullptr && call.values(1).null_count() == 0) {
        if (constant->type().id() != cudf::type_id::STRING) {
            throw std::invalid_argument("what texts are searched for is a text");
        }
        return function(texts, static_cast<cudf::string_scalar const&>(*constant));
    }
    auto const targets = call.texts(1);
    auto found = function(texts, targets);
    if (targets.null_count() > 0) {
        // libcudf's answer for a target that is null is false, or null, by the function.
        auto [mask, nulls] =
            cudf::bitmask_and(cudf::table_view{{texts.parent(), targets.parent()}}, call.stream(), call.mr());
        found->set_null_mask(std::move(mask), nulls);
    }
    return found;
}

ColumnPtr has_text(Call& call) {
    return with_targets(call, [&](auto const& texts, auto const& targets) {
        return strings::contains(texts, targets, call.stream(), call.mr());
    });
}

ColumnPtr starts_with_text(Call& call) {
    return with_targets(call, [&](auto const& texts, auto const& targets) {
        return strings::starts_with(texts, targets, call.stream(), call.mr());
    });
}

ColumnPtr ends_with_text(Call& call) {
    return with_targets(call, [&](auto const& texts, auto const& targets) {
        return strings::ends_with(texts, targets, call.stream(), call.mr());
    });
}

ColumnPtr like_texts(Call& call) {
    return strings::like(call.texts(0), call.text(0), call.text(1), call.stream(), call.mr());
}

ColumnPtr find_text(Call& call) {
    return strings::find(call.texts(0), call.prepared_text(0), 0, -1, call.stream(), call.mr());
}

ColumnPtr slice_texts(Call& call) {
    std::optional<cudf::size_type> const start{call.number(0)};
    std::optional<cudf::size_type> stop;
    if (call.number(1) >= 0) {
        stop = call.number(1);
    }
    return strings::slice_strings(call.texts(0), start, stop, std::nullopt, call.stream(), call.mr());
}

ColumnPtr slice_texts_by_columns(Call& call) {
    return strings::slice_strings(call.texts(0), call.column(1), call.column(2), call.stream(), call.mr());
}

ColumnPtr concatenate_texts(Call& call) {
    std::vector<cudf::column_view> columns;
    for (std::size_t i = 0; i < call.count_arguments(); ++i) {
        columns.push_back(call.column(i));
    }
    return strings::concatenate(
        cudf::table_view{columns}, call.prepared_text(0), call.prepared_text(1),
        strings::separator_on_nulls::YES, call.stream(), call.mr());
}

ColumnPtr replace_text(Call& call) {
    return strings::replace(
        call.texts(0), call.prepared_text(0), call.prepared_text(1), call.number(2), call.stream(),
        call.mr());
}

ColumnPtr replace_by_regex(Call& call) {
    std::optional<cudf::size_type> most;
    if (call.number(2) >= 0) {
        most = call.number(2);
    }
    return strings::replace_re(
        call.texts(0), call.regex(), call.prepared_text(0), most, call.stream(), call.mr());
}

strings::side_type side_named(std::string const& name) {
    if (name == "both") {
        return strings::side_type::BOTH;
    }
    if (name == "left") {
        return strings::side_type::LEFT;
    }
    if (name == "right") {
        return strings::side_type::RIGHT;
    }
    throw std::invalid_argument("a text has no side '" + name + "'");
}

ColumnPtr strip_texts(Call& call) {
    return strings::strip(
        call.texts(0), side_named(call.text(0)), call.prepared_text(1), call.stream(), call.mr());
}

ColumnPtr zfill_texts(Call& call) {
    return strings::zfill(call.texts(0), call.number(0), call.stream(), call.mr());
}

ColumnPtr pad_texts(Call& call) {
    return strings::pad(
        call.texts(0), call.number(0), side_named(call.text(1)), call.text(2), call.stream(), call.mr());
}

ColumnPtr repeat_texts(Call& call) {
    return strings::repeat_strings(call.texts(0), call.number(0), call.stream(), call.mr());
}

ColumnPtr is_integer_text(Call& call) {
    if (call.count_options() == 0) {
        return strings::is_integer(call.texts(0), call.stream(), call.mr());
    }
    cudf::data_type const type{static_cast<cudf::type_id>(call.number(0))};
    return strings::is_integer(call.texts(0), type, call.stream(), call.mr());
}

ColumnPtr texts_to_integers(Call& call) {
    return strings::to_integers(call.texts(0), call.type(), call.stream(), call.mr());
}

ColumnPtr texts_to_floats(Call& call) {
    return strings::to_floats(call.texts(0), call.type(), call.stream(), call.mr());
}

ColumnPtr texts_of_integers(Call& call) {
    return strings::from_integers(call.column(0), call.stream(), call.mr());
}

ColumnPtr texts_of_booleans(Call& call) {
    return strings::from_booleans(
        call.column(0), call.prepared_text(0), call.prepared_text(1), call.stream(), call.mr());
}

constexpr Primitive string_table[]{
    {"str.length", 1, "", of_texts<strings::count_characters>},
    {"str.bytes", 1, "", of_texts<strings::count_bytes>},
    {"str.contains", 1, "pattern", by_regex<strings::contains_re>, prepare_regex},
    {"str.matches", 1, "pattern", by_regex<strings::matches_re>, prepare_regex},
    {"str.count", 1, "pattern", by_regex<strings::count_re>, prepare_regex},
    {"str.like", 1, "pattern escape", like_texts},
    {"str.find", 1, "text", find_text, prepare_texts},
    {"str.has", 2, "", has_text},
    {"str.starts_with", 2, "", starts_with_text},
    {"str.ends_with", 2, "", ends_with_text},
    {"str.upper", 1, "", of_texts<strings::to_upper>},
    {"str.lower", 1, "", of_texts<strings::to_lower>},
    {"str.slice", 1, "start stop", slice_texts},
    {"str.slice_columns", 3, "", slice_texts_by_columns},
    {"str.concat", any_number, "separator", concatenate_texts, prepare_separator},
    {"str.replace", 1, "target replacement count", replace_text, prepare_texts},
    {"str.replace_re", 1, "pattern replacement count", replace_by_regex, prepare_regex},
    {"str.strip", 1, "side characters", strip_texts, prepare_texts},
    {"str.zfill", 1, "width", zfill_texts},
    {"str.pad", 1, "width side fill", pad_texts},
    {"str.repeat", 1, "count", repeat_texts},
    {"str.reverse", 1, "", of_texts<strings::reverse>},
    {"str.is_integer", 1, "[type]", is_integer_text},
    {"str.to_integers", 1, "", texts_to_integers},
    {"str.is_float", 1, "", of_texts<strings::is_float>},
    {"str.to_floats", 1, "", texts_to_floats},
    {"str.from_integers", 1, "", texts_of_integers},
    {"str.from_booleans", 1, "", texts_of_booleans, prepare_truth},
};

}  // namespace

std::span<Primitive const> string_primitives() {
    return string_table;
}

}  // namespace rapidsmpf::compute

#include "table/narrow/narrow_types.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

// The pair of a narrow field's metadata: "<growth>;<format>".
constexpr std::string_view mark = "riverrun:narrow";
constexpr std::int64_t most_growth = 64;

struct Mark {
    std::int64_t growth;
    std::string_view format;
};

[[noreturn]] void throw_malformed(Field const& field) {
    throw FormatError{
        "malformed packed table: column '" + field.name() + "' does not say which type its rows have"};
}

// Null if it is not marked.
std::string const* marked_text(Field const& field) {
    auto const& pairs = field.metadata();
    auto const found =
        std::find_if(pairs.begin(), pairs.end(), [](auto const& pair) { return pair.first == mark; });
    return found == pairs.end() ? nullptr : &found->second;
}

std::optional<Mark> mark_of(Field const& field) {
    auto const* const value = marked_text(field);
    if (value == nullptr) {
        return std::nullopt;
    }
    std::string_view const text{*value};
    Mark its{};
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), its.growth);
    if (error != std::errc{} || end == text.data() + text.size() || *end != ';' || its.growth < 0
        || its.growth > most_growth) {
        throw_malformed(field);
    }
    its.format = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
    return its;
}

// Signed integers by their width.
std::string integer_format(std::int64_t width) {
    switch (width) {
        case 1:
            return "c";
        case 2:
            return "s";
        case 4:
            return "i";
        default:
            return "l";
    }
}

}  // namespace

NarrowKind narrow_kind(Field const& field) {
    auto const& format = field.format();
    if (field.dictionary() != nullptr) {
        return NarrowKind::none;
    }
    if (field.layout() == Layout::view) {
        return NarrowKind::text;
    }
    if (field.layout() != Layout::fixed || field.width() < 2) {
        return NarrowKind::none;
    }
    if (format == "S" || format == "I" || format == "L") {
        return NarrowKind::unsigned_integer;
    }
    bool const is_integer = format == "s" || format == "i" || format == "l" || format == "_pli128";
    bool const is_time = format.starts_with("t") && !format.starts_with("ti");
    bool const is_decimal = format.starts_with("d:") && field.width() <= 16;
    return is_integer || is_time || is_decimal ? NarrowKind::signed_integer : NarrowKind::none;
}

bool is_marked(Field const& field) {
    return marked_text(field) != nullptr;
}

Field narrow_field(Field const& field, std::int64_t width, std::int64_t growth) {
    auto const is_text = field.layout() == Layout::view;
    auto metadata = field.metadata();
    metadata.emplace_back(mark, std::to_string(growth) + ";" + field.format());
    return Field{field.name(),  is_text ? (field.is_text() ? "u" : "z") : integer_format(width),
                 field.flags(), {},
                 nullptr,       std::move(metadata)};
}

Field wide_field(Field const& field) {
    auto const its = mark_of(field);
    if (!its) {
        return field;
    }
    auto metadata = field.metadata();
    std::erase_if(metadata, [](auto const& pair) { return pair.first == mark; });
    std::optional<Field> wide;
    try {
        wide.emplace(
            field.name(), std::string{its->format}, field.flags(), std::vector<Field>{}, nullptr,
            std::move(metadata));
    } catch (std::invalid_argument const&) {
        throw_malformed(field);
    }
    auto const kind = narrow_kind(*wide);
    bool const fits = kind == NarrowKind::text ? field.format() == (wide->is_text() ? "u" : "z")
                                               : kind != NarrowKind::none && field.layout() == Layout::fixed
                                                     && field.width() < wide->width()
                                                     && field.format() == integer_format(field.width());
    if (!fits) {
        throw_malformed(field);
    }
    return std::move(*wide);
}

std::int64_t growth_of(Field const& field) {
    auto const its = mark_of(field);
    return its ? its->growth : 0;
}

std::shared_ptr<Schema const> wide_schema(std::shared_ptr<Schema const> const& schema) {
    if (!schema->is_narrow()) {
        return schema;
    }
    std::vector<Field> fields;
    fields.reserve(schema->num_columns());
    for (auto const& field : schema->fields()) {
        fields.push_back(wide_field(field));
    }
    return std::make_shared<Schema const>(std::move(fields), schema->metadata());
}

}  // namespace rapidsmpf::detail

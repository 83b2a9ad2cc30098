// The types of Arrow's C interface, by their format strings: how their rows lie in memory, and what messages call them.
#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/schema.hpp>

#include "table/arrow/type_limits.hpp"

namespace rapidsmpf {

namespace {

struct FixedType {
    std::string_view format;
    std::int64_t width;
    std::string_view name;
};

// Fixed-width types that are known by their whole format. The two last are Polars' own.
constexpr FixedType fixed_types[] = {
    {"c", 1, "int8"},
    {"C", 1, "uint8"},
    {"s", 2, "int16"},
    {"S", 2, "uint16"},
    {"i", 4, "int32"},
    {"I", 4, "uint32"},
    {"l", 8, "int64"},
    {"L", 8, "uint64"},
    {"e", 2, "float16"},
    {"f", 4, "float32"},
    {"g", 8, "float64"},
    {"tdD", 4, "date32"},
    {"tdm", 8, "date64"},
    {"tts", 4, "time32[s]"},
    {"ttm", 4, "time32[ms]"},
    {"ttu", 8, "time64[us]"},
    {"ttn", 8, "time64[ns]"},
    {"tDs", 8, "duration[s]"},
    {"tDm", 8, "duration[ms]"},
    {"tDu", 8, "duration[us]"},
    {"tDn", 8, "duration[ns]"},
    {"tiM", 4, "interval[months]"},
    {"tiD", 8, "interval[days, ms]"},
    {"tin", 16, "interval[months, days, ns]"},
    {"_pli128", 16, "int128"},
    {"_plu128", 16, "uint128"},
};

FixedType const* find_fixed(std::string_view format) {
    auto const* const found = std::find_if(
        std::begin(fixed_types), std::end(fixed_types),
        [&](auto const& type) { return type.format == format; });
    return found == std::end(fixed_types) ? nullptr : found;
}

// The number that the whole text is; none if it is something else or negative.
std::optional<std::int64_t> whole_number(std::string_view text) {
    std::int32_t value{0};
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
        return std::nullopt;
    }
    return value;
}

// Bytes of a decimal "d:precision,scale[,bits]"; none when it is not one.
std::optional<std::int64_t> decimal_width(std::string_view format) {
    if (!format.starts_with("d:")) {
        return std::nullopt;
    }
    format.remove_prefix(2);
    auto const first = format.find(',');
    if (first == std::string_view::npos || !whole_number(format.substr(0, first))) {
        return std::nullopt;
    }
    auto const rest = format.substr(first + 1);
    auto const second = rest.find(',');
    auto const scale = rest.substr(0, second);
    if (!whole_number(scale.starts_with('-') ? scale.substr(1) : scale)) {
        return std::nullopt;
    }
    if (second == std::string_view::npos) {
        return 16;
    }
    auto const bits = whole_number(rest.substr(second + 1));
    if (bits == 32 || bits == 64 || bits == 128 || bits == 256) {
        return *bits / 8;
    }
    return std::nullopt;
}

std::string unsupported_name(std::string_view format) {
    if (format == "+r") {
        return "run-end encoded";
    }
    if (format.starts_with("+us") || format.starts_with("+ud")) {
        return "union";
    }
    if (format == "+vl" || format == "+vL") {
        return "list_view";
    }
    return "Arrow format '" + std::string{format} + "'";
}

bool is_dictionary(Field const& field) {
    return field.dictionary() != nullptr;
}

}  // namespace

void Field::classify() {
    std::string_view const format{format_};
    std::size_t expected_children = 0;
    bool known = true;
    if (auto const* const type = find_fixed(format)) {
        layout_ = Layout::fixed;
        width_ = type->width;
        value_kind_ = format == "e"   ? ValueKind::float16
                      : format == "f" ? ValueKind::float32
                      : format == "g" ? ValueKind::float64
                                      : ValueKind::plain;
    } else if (format == "n") {
        layout_ = Layout::null;
    } else if (format == "b") {
        layout_ = Layout::bits;
    } else if (format == "u" || format == "z") {
        layout_ = Layout::offsets32;
        text_ = format == "u";
    } else if (format == "U" || format == "Z") {
        layout_ = Layout::offsets64;
        text_ = format == "U";
    } else if (format == "vu" || format == "vz") {
        layout_ = Layout::view;
        text_ = format == "vu";
    } else if (
        format.size() >= 4 && format.starts_with("ts") && format[3] == ':'
        && std::string_view{"smun"}.find(format[2]) != std::string_view::npos) {
        layout_ = Layout::fixed;
        width_ = 8;
    } else if (auto const bytes = decimal_width(format)) {
        layout_ = Layout::fixed;
        width_ = *bytes;
    } else if (auto const size = format.starts_with("w:") ? whole_number(format.substr(2)) : std::nullopt) {
        layout_ = Layout::fixed;
        width_ = *size;
    } else if (format == "+l" || format == "+m") {
        layout_ = Layout::list32;
        expected_children = 1;
    } else if (format == "+L") {
        layout_ = Layout::list64;
        expected_children = 1;
    } else if (auto const size = format.starts_with("+w:") ? whole_number(format.substr(3)) : std::nullopt) {
        layout_ = Layout::fixed_list;
        width_ = *size;
        expected_children = 1;
    } else if (format == "+s") {
        layout_ = Layout::structure;
        expected_children = children_.size();
    } else {
        known = false;
    }
    RAPIDSMPF_EXPECTS(
        known,
        detail::column_name(name_) + " has the type " + unsupported_name(format)
            + ", which is not supported; convert it to a plain type first",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        children_.size() == expected_children,
        detail::column_name(name_) + ": the Arrow format '" + format_ + "' takes "
            + std::to_string(expected_children) + " children, not " + std::to_string(children_.size()),
        std::invalid_argument);
    if (dictionary_) {
        RAPIDSMPF_EXPECTS(
            format.size() == 1 && std::string_view{"cCsSiIlL"}.find(format) != std::string_view::npos,
            detail::column_name(name_) + ": the codes of a dictionary must be integers, not '" + format_
                + "'",
            std::invalid_argument);
        RAPIDSMPF_EXPECTS(
            !any_field_in(*dictionary_, is_dictionary),
            detail::column_name(name_)
                + " is a dictionary of dictionaries, which is not supported; convert it first",
            std::invalid_argument);
    }
}

std::string Field::type_name() const {
    if (dictionary_) {
        return "dictionary<" + dictionary_->type_name() + ">";
    }
    auto const child = [this] { return "<" + children_.front().type_name() + ">"; };
    switch (layout_) {
        case Layout::null:
            return "null";
        case Layout::bits:
            return "boolean";
        case Layout::offsets32:
            return text_ ? "utf8" : "binary";
        case Layout::offsets64:
            return text_ ? "large_utf8" : "large_binary";
        case Layout::view:
            return text_ ? "string_view" : "binary_view";
        case Layout::list32:
            return (format_ == "+m" ? "map" : "list") + child();
        case Layout::list64:
            return "large_list" + child();
        case Layout::fixed_list:
            return "fixed_size_list" + child() + "[" + std::to_string(width_) + "]";
        case Layout::structure: {
            std::string text = "struct<";
            for (auto const& field : children_) {
                text += (text.back() == '<' ? "" : ", ") + field.name() + ": " + field.type_name();
            }
            return text + ">";
        }
        case Layout::fixed:
            break;
    }
    if (auto const* const type = find_fixed(format_)) {
        return std::string{type->name};
    }
    if (format_.starts_with("ts")) {
        auto const zone = format_.substr(4);
        constexpr std::string_view units[] = {"s", "ms", "us", "ns"};
        auto const unit = std::string{units[std::string_view{"smun"}.find(format_[2])]};
        return "timestamp[" + unit + (zone.empty() ? "" : ", " + zone) + "]";
    }
    if (format_.starts_with("d:")) {
        return "decimal" + std::to_string(width_ * 8) + "(" + format_.substr(2) + ")";
    }
    return "fixed_size_binary[" + std::to_string(width_) + "]";
}

}  // namespace rapidsmpf

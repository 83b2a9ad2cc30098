#include <rapidsmpf/table/schema.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "table/host/bytes.hpp"

namespace rapidsmpf {

namespace {

// Deeper types than this are refused: every visit of a type is recursive.
constexpr int max_depth = 100;

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

std::string quoted(std::string const& name) {
    return "column '" + name + "'";
}

Field::Metadata read_arrow_metadata(char const* bytes) {
    Field::Metadata pairs;
    if (bytes == nullptr) {
        return pairs;
    }
    auto const number = [&] {
        std::int32_t value;
        std::memcpy(&value, bytes, sizeof value);
        bytes += sizeof value;
        return value;
    };
    auto const text = [&] {
        auto const size = static_cast<std::size_t>(number());
        std::string value(bytes, size);
        bytes += size;
        return value;
    };
    for (auto left = number(); left > 0; --left) {
        auto key = text();
        auto value = text();
        pairs.emplace_back(std::move(key), std::move(value));
    }
    return pairs;
}

std::string write_arrow_metadata(Field::Metadata const& pairs) {
    std::string bytes;
    auto const number = [&](std::size_t value) {
        auto const narrow = static_cast<std::int32_t>(value);
        bytes.append(reinterpret_cast<char const*>(&narrow), sizeof narrow);
    };
    if (!pairs.empty()) {
        number(pairs.size());
        for (auto const& [key, value] : pairs) {
            number(key.size());
            bytes += key;
            number(value.size());
            bytes += value;
        }
    }
    return bytes;
}

// What an exported ArrowSchema owns.
struct ExportedSchema {
    std::string format;
    std::string name;
    std::string metadata;
    std::vector<std::unique_ptr<ArrowSchema>> children;
    std::vector<ArrowSchema*> child_pointers;
    std::unique_ptr<ArrowSchema> dictionary;
};

void release_exported_schema(ArrowSchema* schema) {
    std::unique_ptr<ExportedSchema> const owned{static_cast<ExportedSchema*>(schema->private_data)};
    for (auto const& child : owned->children) {
        if (child->release != nullptr) {  // a consumer may have moved it out
            child->release(child.get());
        }
    }
    if (owned->dictionary && owned->dictionary->release != nullptr) {
        owned->dictionary->release(owned->dictionary.get());
    }
    schema->release = nullptr;
    schema->private_data = nullptr;
}

void export_schema_node(
    std::string format, std::string name, std::int64_t flags, Field::Metadata const& metadata,
    std::vector<Field> const& children, Field const* dictionary, ArrowSchema* out) {
    auto owned = std::make_unique<ExportedSchema>();
    owned->format = std::move(format);
    owned->name = std::move(name);
    owned->metadata = write_arrow_metadata(metadata);
    *out = ArrowSchema{};
    out->format = owned->format.c_str();
    out->name = owned->name.c_str();
    out->metadata = owned->metadata.empty() ? nullptr : owned->metadata.data();
    out->flags = flags;
    out->release = release_exported_schema;
    out->private_data = owned.get();
    auto& content = *owned.release();
    try {
        for (auto const& child : children) {
            content.children.push_back(std::make_unique<ArrowSchema>(ArrowSchema{}));
            child.to_arrow(content.children.back().get());
            content.child_pointers.push_back(content.children.back().get());
        }
        if (dictionary != nullptr) {
            content.dictionary = std::make_unique<ArrowSchema>(ArrowSchema{});
            dictionary->to_arrow(content.dictionary.get());
        }
    } catch (...) {
        release_exported_schema(out);
        throw;
    }
    out->n_children = static_cast<std::int64_t>(content.child_pointers.size());
    out->children = content.child_pointers.data();
    out->dictionary = content.dictionary.get();
}

bool is_dictionary(Field const& field) {
    return field.dictionary() != nullptr;
}

Field field_from_arrow(ArrowSchema const& schema, std::string const& path, int depth) {
    RAPIDSMPF_EXPECTS(
        schema.release != nullptr && schema.format != nullptr,
        quoted(path) + ": its Arrow schema has been released", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        depth < max_depth, quoted(path) + " is nested deeper than " + std::to_string(max_depth) + " levels",
        std::invalid_argument);
    std::string name = schema.name == nullptr ? "" : schema.name;
    std::vector<Field> children;
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
        auto const& child = *schema.children[i];
        auto const child_name = child.name == nullptr ? std::string{} : std::string{child.name};
        children.push_back(field_from_arrow(child, path + "." + child_name, depth + 1));
    }
    std::shared_ptr<Field const> dictionary;
    if (schema.dictionary != nullptr) {
        dictionary = std::make_shared<Field const>(field_from_arrow(*schema.dictionary, path, depth + 1));
    }
    try {
        return Field{std::move(name),     schema.format,         schema.flags,
                     std::move(children), std::move(dictionary), read_arrow_metadata(schema.metadata)};
    } catch (std::invalid_argument const& error) {
        // The constructor knows the last name of the path only.
        auto const text = std::string{error.what()};
        auto const own = quoted(schema.name == nullptr ? "" : schema.name);
        throw std::invalid_argument{text.starts_with(own) ? quoted(path) + text.substr(own.size()) : text};
    }
}

void serialize_pairs(detail::ByteWriter& out, Field::Metadata const& pairs) {
    out.number(static_cast<std::uint32_t>(pairs.size()));
    for (auto const& [key, value] : pairs) {
        out.text(key);
        out.text(value);
    }
}

Field::Metadata deserialize_pairs(detail::ByteReader& in) {
    Field::Metadata pairs;
    for (auto left = in.count(8); left > 0; --left) {
        auto key = in.text();
        auto value = in.text();
        pairs.emplace_back(std::move(key), std::move(value));
    }
    return pairs;
}

void serialize_field(detail::ByteWriter& out, Field const& field) {
    out.text(field.name());
    out.text(field.format());
    out.number(field.flags());
    serialize_pairs(out, field.metadata());
    out.number(static_cast<std::uint32_t>(field.children().size()));
    for (auto const& child : field.children()) {
        serialize_field(out, child);
    }
    out.number(static_cast<std::uint8_t>(field.dictionary() != nullptr ? 1 : 0));
    if (field.dictionary() != nullptr) {
        serialize_field(out, *field.dictionary());
    }
}

// Bytes of a field without name, children and so on.
constexpr std::size_t smallest_field = 4 + 4 + 8 + 4 + 4 + 1;

Field deserialize_field(detail::ByteReader& in, int depth) {
    RAPIDSMPF_EXPECTS(depth < max_depth, "malformed schema: nested too deeply", FormatError);
    auto name = in.text();
    auto format = in.text();
    // In Arrow's C interface, where all schemas come from, both end at the first one.
    RAPIDSMPF_EXPECTS(
        name.find('\0') == std::string::npos && format.find('\0') == std::string::npos,
        "malformed schema: a zero byte in a name or a format", FormatError);
    auto const flags = in.number<std::int64_t>();
    auto metadata = deserialize_pairs(in);
    std::vector<Field> children;
    for (auto left = in.count(smallest_field); left > 0; --left) {
        children.push_back(deserialize_field(in, depth + 1));
    }
    auto const has_dictionary = in.number<std::uint8_t>();
    RAPIDSMPF_EXPECTS(has_dictionary <= 1, "malformed schema: bad dictionary mark", FormatError);
    std::shared_ptr<Field const> dictionary;
    if (has_dictionary == 1) {
        dictionary = std::make_shared<Field const>(deserialize_field(in, depth + 1));
    }
    try {
        return Field{std::move(name),     std::move(format),     flags,
                     std::move(children), std::move(dictionary), std::move(metadata)};
    } catch (std::invalid_argument const& error) {
        throw FormatError{std::string{"malformed schema: "} + error.what()};
    }
}

// The metadata that says what values are; other keys (pandas', the user's) do not keep rows apart.
Field::Metadata type_metadata(Field const& field) {
    Field::Metadata pairs;
    for (auto const& pair : field.metadata()) {
        if (pair.first.starts_with("_PL_") || pair.first.starts_with("ARROW:extension:")) {
            pairs.push_back(pair);
        }
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

std::string field_difference(Field const& a, Field const& b, std::string const& path) {
    if (a.format() != b.format() || a.children().size() != b.children().size()
        || (a.dictionary() == nullptr) != (b.dictionary() == nullptr)) {
        return quoted(path) + " is " + a.type_name() + " in one and " + b.type_name() + " in another";
    }
    if (type_metadata(a) != type_metadata(b)) {
        return quoted(path) + " is " + a.type_name()
               + " in both but with different categories or extension types";
    }
    for (std::size_t i = 0; i < a.children().size(); ++i) {
        auto const& child = a.children()[i];
        if (a.layout() == Layout::structure && child.name() != b.children()[i].name()) {
            return quoted(path) + " has the field '" + child.name() + "' in one and '"
                   + b.children()[i].name() + "' in another";
        }
        auto text = field_difference(child, b.children()[i], path + "." + child.name());
        if (!text.empty()) {
            return text;
        }
    }
    return a.dictionary() == nullptr ? "" : field_difference(*a.dictionary(), *b.dictionary(), path);
}

}  // namespace

Field::Field(
    std::string name, std::string format, std::int64_t flags, std::vector<Field> children,
    std::shared_ptr<Field const> dictionary, Metadata metadata)
    : name_{std::move(name)},
      format_{std::move(format)},
      flags_{flags},
      metadata_{std::move(metadata)},
      children_{std::move(children)},
      dictionary_{std::move(dictionary)} {
    classify();
}

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
        quoted(name_) + " has the type " + unsupported_name(format)
            + ", which is not supported; convert it to a plain type first",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        children_.size() == expected_children,
        quoted(name_) + ": the Arrow format '" + format_ + "' takes " + std::to_string(expected_children)
            + " children, not " + std::to_string(children_.size()),
        std::invalid_argument);
    if (dictionary_) {
        RAPIDSMPF_EXPECTS(
            format.size() == 1 && std::string_view{"cCsSiIlL"}.find(format) != std::string_view::npos,
            quoted(name_) + ": the codes of a dictionary must be integers, not '" + format_ + "'",
            std::invalid_argument);
        RAPIDSMPF_EXPECTS(
            !any_field_in(*dictionary_, is_dictionary),
            quoted(name_) + " is a dictionary of dictionaries, which is not supported; convert it first",
            std::invalid_argument);
    }
}

Field Field::from_arrow(ArrowSchema const& schema, std::string const& path) {
    auto const own = schema.name == nullptr ? std::string{} : std::string{schema.name};
    return field_from_arrow(schema, path.empty() ? own : path, 0);
}

bool Field::has_ordered_codes() const noexcept {
    return dictionary_ && (flags_ & ARROW_FLAG_DICTIONARY_ORDERED) != 0
           && std::none_of(metadata_.begin(), metadata_.end(), [](auto const& pair) {
                  return pair.first == "_PL_ENUM_VALUES2" || pair.first == "_PL_ENUM_VALUES";
              });
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

void Field::to_arrow(ArrowSchema* out) const {
    export_schema_node(format_, name_, flags_, metadata_, children_, dictionary_.get(), out);
}

bool operator==(Field const& a, Field const& b) {
    return a.name_ == b.name_ && a.format_ == b.format_ && a.flags_ == b.flags_ && a.metadata_ == b.metadata_
           && a.children_ == b.children_ && (a.dictionary_ == nullptr) == (b.dictionary_ == nullptr)
           && (a.dictionary_ == nullptr || *a.dictionary_ == *b.dictionary_);
}

Schema::Schema(std::vector<Field> fields, Field::Metadata metadata)
    : fields_{std::move(fields)}, metadata_{std::move(metadata)} {
    detail::ByteWriter out{serialized_};
    serialize_pairs(out, metadata_);
    out.number(static_cast<std::uint32_t>(fields_.size()));
    for (auto const& field : fields_) {
        serialize_field(out, field);
    }
    serialized_.shrink_to_fit();
}

std::shared_ptr<Schema const> Schema::from_arrow(ArrowSchema const& schema) {
    RAPIDSMPF_EXPECTS(
        schema.release != nullptr && schema.format != nullptr, "the Arrow schema has been released",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        std::string_view{schema.format} == "+s" && schema.dictionary == nullptr,
        "a table must be a struct in the Arrow C interface, not '" + std::string{schema.format}
            + "' (is it a single column?)",
        std::invalid_argument);
    std::vector<Field> fields;
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
        fields.push_back(Field::from_arrow(*schema.children[i]));
    }
    return std::make_shared<Schema const>(std::move(fields), read_arrow_metadata(schema.metadata));
}

void Schema::to_arrow(ArrowSchema* out) const {
    export_schema_node("+s", "", 0, metadata_, fields_, nullptr, out);
}

std::size_t Schema::index_of(std::string_view name) const {
    auto const found = std::find_if(
        fields_.begin(), fields_.end(), [&](Field const& field) { return field.name() == name; });
    if (found == fields_.end()) {
        std::string names;
        for (auto const& field : fields_) {
            names += (names.empty() ? "'" : ", '") + field.name() + "'";
        }
        throw std::invalid_argument{
            "there is no column '" + std::string{name}
            + "'; the columns are: " + (names.empty() ? "none" : names)};
    }
    return static_cast<std::size_t>(found - fields_.begin());
}

std::shared_ptr<Schema const> Schema::deserialize(std::span<std::uint8_t const> bytes) {
    detail::ByteReader in{bytes};
    auto metadata = deserialize_pairs(in);
    std::vector<Field> fields;
    for (auto left = in.count(smallest_field); left > 0; --left) {
        fields.push_back(deserialize_field(in, 0));
    }
    RAPIDSMPF_EXPECTS(in.remaining() == 0, "malformed schema: bytes after its end", FormatError);
    return std::make_shared<Schema const>(std::move(fields), std::move(metadata));
}

std::string difference(Schema const& a, Schema const& b) {
    if (a.num_columns() != b.num_columns()) {
        return "one has " + std::to_string(a.num_columns()) + " columns and another "
               + std::to_string(b.num_columns());
    }
    for (std::size_t i = 0; i < a.num_columns(); ++i) {
        auto const& field = a.fields()[i];
        if (field.name() != b.fields()[i].name()) {
            return "column number " + std::to_string(i) + " is '" + field.name() + "' in one and '"
                   + b.fields()[i].name() + "' in another";
        }
        auto text = field_difference(field, b.fields()[i], field.name());
        if (!text.empty()) {
            return text;
        }
    }
    return "";
}

}  // namespace rapidsmpf

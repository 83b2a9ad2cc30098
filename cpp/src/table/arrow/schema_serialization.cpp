// The binary form of schemas, which every packed table carries.
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/schema.hpp>

#include "table/arrow/type_limits.hpp"
#include "table/host/bytes.hpp"
#include "table/narrow/narrow_types.hpp"

namespace rapidsmpf {

namespace {

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
    RAPIDSMPF_EXPECTS(depth < detail::most_type_levels, "malformed schema: nested too deeply", FormatError);
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

}  // namespace

Schema::Schema(std::vector<Field> fields, Field::Metadata metadata, RowForm form)
    : fields_{std::move(fields)}, metadata_{std::move(metadata)}, form_{form} {
    if (is_narrow()) {
        for (auto const& field : fields_) {
            row_growth_ += detail::growth_of(field);
        }
    }
    detail::ByteWriter out{serialized_};
    serialize_pairs(out, metadata_);
    out.number(static_cast<std::uint32_t>(fields_.size()));
    for (auto const& field : fields_) {
        serialize_field(out, field);
    }
    serialized_.shrink_to_fit();
}

std::shared_ptr<Schema const> Schema::deserialize(std::span<std::uint8_t const> bytes, RowForm form) {
    detail::ByteReader in{bytes};
    auto metadata = deserialize_pairs(in);
    std::vector<Field> fields;
    for (auto left = in.count(smallest_field); left > 0; --left) {
        fields.push_back(deserialize_field(in, 0));
    }
    RAPIDSMPF_EXPECTS(in.remaining() == 0, "malformed schema: bytes after its end", FormatError);
    return std::make_shared<Schema const>(std::move(fields), std::move(metadata), form);
}

}  // namespace rapidsmpf

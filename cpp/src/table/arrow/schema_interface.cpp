// Schemas to and from the structs of Arrow's C interface.
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/schema.hpp>

#include "table/arrow/type_limits.hpp"

namespace rapidsmpf {

namespace {

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

Field field_from_arrow(ArrowSchema const& schema, std::string const& path, int depth) {
    RAPIDSMPF_EXPECTS(
        schema.release != nullptr && schema.format != nullptr,
        detail::column_name(path) + ": its Arrow schema has been released", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        depth < detail::most_type_levels,
        detail::column_name(path) + " is nested deeper than " + std::to_string(detail::most_type_levels)
            + " levels",
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
        auto const own = detail::column_name(schema.name == nullptr ? "" : schema.name);
        throw std::invalid_argument{
            text.starts_with(own) ? detail::column_name(path) + text.substr(own.size()) : text};
    }
}

}  // namespace

Field Field::from_arrow(ArrowSchema const& schema, std::string const& path) {
    auto const own = schema.name == nullptr ? std::string{} : std::string{schema.name};
    return field_from_arrow(schema, path.empty() ? own : path, 0);
}

void Field::to_arrow(ArrowSchema* out) const {
    export_schema_node(format_, name_, flags_, metadata_, children_, dictionary_.get(), out);
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

}  // namespace rapidsmpf

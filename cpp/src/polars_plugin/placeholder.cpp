// An expression of the plugin that stands for one which Polars does not show in its plan views.
//
// cudf_polars.plan.substitute puts `placeholder` in the place of such an expression before Polars optimises the
// query, so that the rest of the plan becomes visible; the original is kept in Python. It only tells Polars the type
// of the result, and is never run: the reader puts the original back before anything is executed.
//
// The keyword arguments are the text "<address>;<number>": the address of an ArrowSchema of type struct whose one
// child is the result's type, owned by Python for as long as the plan is being read, and the number by which the
// reader finds the original. The returned schema is a deep copy that owns all of its memory.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "polars_plugin/plugin.hpp"

namespace {

// What a copied schema points into. Children have owners of their own, released through their parent.
struct Owner {
    std::string format;
    std::string name;
    std::vector<char> metadata;
    std::vector<std::unique_ptr<ArrowSchema>> children;
    std::vector<ArrowSchema*> child_pointers;
    std::unique_ptr<ArrowSchema> dictionary;
};

void release_if_owned(ArrowSchema* schema) noexcept {
    if (schema != nullptr && schema->release != nullptr) {
        schema->release(schema);
    }
}

void release_copy(ArrowSchema* schema) noexcept {
    // Adopt first: whatever is below goes with it, also when a consumer has moved children out (release == nullptr).
    std::unique_ptr<Owner> const owner{static_cast<Owner*>(schema->private_data)};
    for (auto const& child : owner->children) {
        release_if_owned(child.get());
    }
    release_if_owned(owner->dictionary.get());
    schema->release = nullptr;
    schema->private_data = nullptr;
}

// Metadata is: number of pairs, then for each of key and value its length and its bytes; all lengths are int32.
std::size_t metadata_size(char const* metadata) {
    std::size_t at = 0;
    auto const read = [&] {
        std::int32_t value = 0;
        std::memcpy(&value, metadata + at, sizeof(value));
        at += sizeof(value);
        if (value < 0) {
            throw std::invalid_argument("the type's metadata has a negative length");
        }
        return static_cast<std::size_t>(value);
    };
    auto const pairs = read();
    for (std::size_t i = 0; i < 2 * pairs; ++i) {
        at += read();
    }
    return at;
}

void copy_schema(ArrowSchema const& from, std::string_view name, ArrowSchema& to);

// A child that is released again when a later one fails.
struct Releaser {
    void operator()(ArrowSchema* schema) const noexcept {
        release_if_owned(schema);
        delete schema;
    }
};
using Copied = std::unique_ptr<ArrowSchema, Releaser>;

Copied copied(ArrowSchema const& from) {
    Copied out{std::make_unique<ArrowSchema>().release()};
    copy_schema(from, from.name == nullptr ? "" : from.name, *out);
    return out;
}

void copy_schema(ArrowSchema const& from, std::string_view name, ArrowSchema& to) {
    to = ArrowSchema{};
    if (from.release == nullptr || from.format == nullptr) {
        throw std::invalid_argument("the type of the placeholder has been released");
    }
    // Everything that can fail is made before `to` owns anything.
    std::vector<Copied> children;
    children.reserve(static_cast<std::size_t>(from.n_children));
    for (std::int64_t i = 0; i < from.n_children; ++i) {
        children.push_back(copied(*from.children[i]));
    }
    Copied dictionary = from.dictionary == nullptr ? nullptr : copied(*from.dictionary);
    auto owner = std::make_unique<Owner>();
    owner->format = from.format;
    owner->name = name;
    if (from.metadata != nullptr) {
        owner->metadata.assign(from.metadata, from.metadata + metadata_size(from.metadata));
    }
    owner->children.reserve(children.size());
    owner->child_pointers.reserve(children.size());
    for (auto& child : children) {
        owner->child_pointers.push_back(child.get());
        owner->children.emplace_back(child.release());
    }
    owner->dictionary.reset(dictionary.release());

    to.format = owner->format.c_str();
    to.name = owner->name.c_str();
    to.metadata = owner->metadata.empty() ? nullptr : owner->metadata.data();
    to.flags = from.flags;
    to.n_children = from.n_children;
    to.children = owner->child_pointers.empty() ? nullptr : owner->child_pointers.data();
    to.dictionary = owner->dictionary.get();
    to.release = release_copy;
    to.private_data = owner.release();
}

ArrowSchema const& type_of(std::string_view arguments) {
    std::uintptr_t address = 0;
    auto const* const end = arguments.data() + arguments.size();
    auto const [stop, error] = std::from_chars(arguments.data(), end, address);
    if (error != std::errc{} || stop == end || *stop != ';' || address == 0) {
        throw std::invalid_argument("the placeholder's arguments are not '<address>;<number>'");
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address comes through Polars, which passes bytes only
    auto const& outer = *reinterpret_cast<ArrowSchema const*>(address);
    if (outer.release == nullptr || outer.n_children != 1) {
        throw std::invalid_argument("the type of the placeholder has been released");
    }
    return *outer.children[0];
}

}  // namespace

extern "C" {

// A result without private data tells Polars that the call failed.
[[gnu::visibility("default")]] void _polars_plugin_field_placeholder(
    ArrowSchema const* inputs, std::size_t n_inputs, ArrowSchema* result, std::uint8_t const* arguments,
    std::size_t n_arguments) {
    *result = ArrowSchema{};
    try {
        std::string_view const text{reinterpret_cast<char const*>(arguments), n_arguments};
        bool const named = n_inputs > 0 && inputs[0].name != nullptr;
        copy_schema(type_of(text), named ? inputs[0].name : "placeholder", *result);
    } catch (std::exception const& error) {
        polars_plugin::last_error() = error.what();
    }
}

[[gnu::visibility("default")]] void _polars_plugin_placeholder(
    SeriesExport const*, std::size_t, std::uint8_t const*, std::size_t, SeriesExport* result, void*) {
    *result = SeriesExport{};
    polars_plugin::last_error() =
        "a placeholder of cudf_polars was run: it stands for an expression while a query is read and must be "
        "replaced by the original before; please report this query";
}

}  // extern "C"

// What a table's columns are: a validated tree of column types.
//
// A Field is a deep copy of an ArrowSchema node (format, name, flags, metadata pairs, children, dictionary),
// so that what only the metadata says (Polars' Categorical and Enum, extension types) survives a trip, plus
// what our kernels dispatch on: the physical layout. Immutable once made; shared by shared_ptr<Schema const>.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/table/arrow_c.hpp>

namespace rapidsmpf {

// The memory layout of a column's rows.
enum class Layout : std::uint8_t {
    null,        // no buffers at all
    bits,        // boolean, one bit a row
    fixed,       // `width` bytes a row
    offsets32,   // utf8, binary: 32-bit offsets into bytes
    offsets64,   // large_utf8, large_binary
    view,        // string_view, binary_view: 16-byte views, inline or into variadic buffers
    list32,      // list, map: 32-bit offsets into the child
    list64,      // large_list
    fixed_list,  // `width` child rows a row
    structure,   // children side by side
};

// How the bytes of a fixed-width value compare: floats have two zeros and many NaNs.
enum class ValueKind : std::uint8_t { plain, float16, float32, float64 };

class Field {
  public:
    using Metadata = std::vector<std::pair<std::string, std::string>>;

    // Validates the format string and the children. Throws std::invalid_argument naming `name` and the type when
    // it is not supported (run-end encoded, unions, list views).
    Field(
        std::string name, std::string format, std::int64_t flags = ARROW_FLAG_NULLABLE,
        std::vector<Field> children = {}, std::shared_ptr<Field const> dictionary = nullptr,
        Metadata metadata = {});
    // A deep copy. `path` names the column in errors.
    [[nodiscard]] static Field from_arrow(ArrowSchema const& schema, std::string const& path = "");

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    [[nodiscard]] std::string const& format() const noexcept { return format_; }
    [[nodiscard]] std::int64_t flags() const noexcept { return flags_; }
    [[nodiscard]] Metadata const& metadata() const noexcept { return metadata_; }
    [[nodiscard]] std::vector<Field> const& children() const noexcept { return children_; }
    // The type of the values when the column is dictionary encoded (then format() is that of the codes), else null.
    [[nodiscard]] Field const* dictionary() const noexcept { return dictionary_.get(); }
    // Whether the codes themselves have an order, so that they must not be renumbered. (Not so for a Polars Enum,
    // whose order is in its metadata.)
    [[nodiscard]] bool has_ordered_codes() const noexcept;

    [[nodiscard]] Layout layout() const noexcept { return layout_; }
    // Bytes a row (fixed) or child rows a row (fixed_list), else 0.
    [[nodiscard]] std::int64_t width() const noexcept { return width_; }
    [[nodiscard]] ValueKind value_kind() const noexcept { return value_kind_; }
    // Whether the bytes are UTF-8 text.
    [[nodiscard]] bool is_text() const noexcept { return text_; }
    // For messages: "large_list<string_view>".
    [[nodiscard]] std::string type_name() const;

    void to_arrow(ArrowSchema* out) const;

    friend bool operator==(Field const& a, Field const& b);

  private:
    void classify();

    std::string name_;
    std::string format_;
    std::int64_t flags_;
    Metadata metadata_;
    std::vector<Field> children_;
    std::shared_ptr<Field const> dictionary_;
    Layout layout_{Layout::null};
    std::int64_t width_{0};
    ValueKind value_kind_{ValueKind::plain};
    bool text_{false};
};

// Whether `is(field)` holds for the field, its dictionary or one of its children, at any depth.
template <typename Is>
[[nodiscard]] bool any_field_in(Field const& field, Is const& is) {
    auto const below = [&](Field const& child) { return any_field_in(child, is); };
    return is(field) || (field.dictionary() != nullptr && below(*field.dictionary()))
           || std::any_of(field.children().begin(), field.children().end(), below);
}

// How a table holds its rows: as its fields say, or narrow (narrow.hpp), so that fields say what their columns were.
enum class RowForm : std::uint8_t { plain, narrow };

class Schema {
  public:
    // Throws std::invalid_argument when a name or a text of the metadata is longer than 4 GiB, FormatError when a field of
    // a narrow table says something impossible.
    explicit Schema(std::vector<Field> fields, Field::Metadata metadata = {}, RowForm form = RowForm::plain);
    // Of a record batch: the root must be a struct.
    [[nodiscard]] static std::shared_ptr<Schema const> from_arrow(ArrowSchema const& schema);
    void to_arrow(ArrowSchema* out) const;

    [[nodiscard]] std::vector<Field> const& fields() const noexcept { return fields_; }
    [[nodiscard]] Field::Metadata const& metadata() const noexcept { return metadata_; }
    [[nodiscard]] std::size_t num_columns() const noexcept { return fields_.size(); }
    [[nodiscard]] RowForm form() const noexcept { return form_; }
    [[nodiscard]] bool is_narrow() const noexcept { return form_ == RowForm::narrow; }
    // Bytes that a row of a narrow table takes more, about, once it is widened.
    [[nodiscard]] std::int64_t row_growth() const noexcept { return row_growth_; }
    // Index of the column called `name`. Throws std::invalid_argument, listing the names there are.
    [[nodiscard]] std::size_t index_of(std::string_view name) const;

    // The fields and the metadata in binary, as every packed table carries them; form() is not in it. Made once.
    [[nodiscard]] std::span<std::uint8_t const> serialized() const noexcept { return serialized_; }
    // Throws FormatError on anything that serialized() cannot be.
    [[nodiscard]] static std::shared_ptr<Schema const> deserialize(
        std::span<std::uint8_t const> bytes, RowForm form = RowForm::plain);

    friend bool operator==(Schema const& a, Schema const& b) {
        return a.fields_ == b.fields_ && a.metadata_ == b.metadata_ && a.form_ == b.form_;
    }

  private:
    std::vector<Field> fields_;
    Field::Metadata metadata_;
    RowForm form_;
    std::int64_t row_growth_{0};
    std::vector<std::uint8_t> serialized_;
};

// Why rows of `b` cannot stand under rows of `a`: empty when they can, else text that names the column. Names
// of list items, nullability and metadata other than Polars' and extension types' do not matter.
[[nodiscard]] std::string difference(Schema const& a, Schema const& b);

}  // namespace rapidsmpf

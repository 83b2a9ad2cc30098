// Which columns can be narrow, and how a schema says what they were.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <rapidsmpf/table/schema.hpp>

namespace rapidsmpf::detail {

// The values of a column that can be narrow.
enum class NarrowKind : std::uint8_t {
    none,              // it cannot
    signed_integer,    // of the field's width, 2 to 16 bytes
    unsigned_integer,  // of 2 to 8 bytes
    text,              // string or binary views
};
[[nodiscard]] NarrowKind narrow_kind(Field const& field);

// The field of the same column with integers of `width` bytes, or for texts with 32-bit offsets. `growth`: bytes that a row
// takes more, about, once it is widened.
[[nodiscard]] Field narrow_field(Field const& field, std::int64_t width, std::int64_t growth);
// Whether a field carries the mark of a narrow one, which some other program's field may do by chance.
[[nodiscard]] bool is_marked(Field const& field);
// What a field of a narrow schema was; the field itself if it is not narrow. Throws FormatError when that cannot be.
[[nodiscard]] Field wide_field(Field const& field);
// By how many bytes a row of this field of a narrow schema grows when it is widened; 0 if the field is not narrow. Throws
// FormatError.
[[nodiscard]] std::int64_t growth_of(Field const& field);
// The schema that the rows of a table with this one have when they are widened.
[[nodiscard]] std::shared_ptr<Schema const> wide_schema(std::shared_ptr<Schema const> const& schema);

}  // namespace rapidsmpf::detail

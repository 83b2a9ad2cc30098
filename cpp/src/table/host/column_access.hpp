// Reading single values of columns.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

template <typename T>
[[nodiscard]] inline T load(void const* base, std::int64_t index) noexcept {
    T value;
    std::memcpy(
        &value, static_cast<std::byte const*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
        sizeof(T));
    return value;
}

template <typename T>
inline void store(void* base, std::int64_t index, T value) noexcept {
    std::memcpy(
        static_cast<std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// A string_view or binary_view as it lies in memory.
struct View {
    static constexpr std::uint32_t max_inline = 12;
    std::uint32_t size;
    std::uint32_t prefix;  // from here on, the text itself when it is short
    std::uint32_t buffer;
    std::uint32_t offset;
};
static_assert(sizeof(View) == 16);

[[nodiscard]] inline View load_view(Column const& column, std::int64_t row) noexcept {
    return load<View>(column.values, column.offset + row);
}

// The bytes of a valid row of a column with Layout::view, offsets32 or offsets64.
[[nodiscard]] inline std::span<std::uint8_t const> bytes_at(
    Layout layout, Column const& column, std::int64_t row) noexcept {
    auto const at = column.offset + row;
    if (layout == Layout::view) {
        auto const view = load_view(column, row);
        auto const* const bytes =
            view.size <= View::max_inline
                ? reinterpret_cast<std::uint8_t const*>(column.values) + at * 16 + 4
                : reinterpret_cast<std::uint8_t const*>(column.variadic[view.buffer].data()) + view.offset;
        return {bytes, view.size};
    }
    auto const offset = [&](std::int64_t i) {
        return layout == Layout::offsets32 ? static_cast<std::int64_t>(load<std::int32_t>(column.offsets, i))
                                           : load<std::int64_t>(column.offsets, i);
    };
    auto const begin = offset(at);
    return {
        reinterpret_cast<std::uint8_t const*>(column.data.data()) + begin,
        static_cast<std::size_t>(offset(at + 1) - begin)};
}

struct RowRange {
    std::int64_t begin;
    std::int64_t length;
};

// Which rows of the child belong to a row of a list32, list64 or fixed_list.
[[nodiscard]] inline RowRange items_at(Field const& field, Column const& column, std::int64_t row) noexcept {
    if (field.layout() == Layout::fixed_list) {
        return {row * field.width(), field.width()};
    }
    auto const at = column.offset + row;
    if (field.layout() == Layout::list32) {
        auto const begin = load<std::int32_t>(column.offsets, at);
        return {begin, load<std::int32_t>(column.offsets, at + 1) - begin};
    }
    auto const begin = load<std::int64_t>(column.offsets, at);
    return {begin, load<std::int64_t>(column.offsets, at + 1) - begin};
}

// The code of a row of a dictionary column. Codes of valid rows are not negative.
[[nodiscard]] inline std::uint64_t code_at(
    Field const& field, Column const& column, std::int64_t row) noexcept {
    auto const at = column.offset + row;
    switch (field.width()) {
        case 1:
            return load<std::uint8_t>(column.values, at);
        case 2:
            return load<std::uint16_t>(column.values, at);
        case 4:
            return load<std::uint32_t>(column.values, at);
        default:
            return load<std::uint64_t>(column.values, at);
    }
}

}  // namespace rapidsmpf::detail

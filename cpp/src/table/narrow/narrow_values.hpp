// The loops of narrowing and widening: integers and decimals as 64-bit numbers, whatever bytes they take.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "table/host/column_access.hpp"
#include "table/host/scatter.hpp"

namespace rapidsmpf::detail {

// Calls use(T{}) with the type of signed numbers of `width` bytes; Bytes16 for 16.
template <typename Use>
void with_signed_type(std::int64_t width, Use const& use) {
    switch (width) {
        case 1:
            use(std::int8_t{});
            break;
        case 2:
            use(std::int16_t{});
            break;
        case 4:
            use(std::int32_t{});
            break;
        case 8:
            use(std::int64_t{});
            break;
        default:
            use(Bytes16{});
            break;
    }
}

// A number of up to 64 bits.
template <typename To>
[[nodiscard]] To from_number(std::int64_t value) noexcept {
    if constexpr (std::is_same_v<To, Bytes16>) {
        return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 63)};
    } else {
        return static_cast<To>(value);
    }
}
// The low 64 bits of one.
template <typename From>
[[nodiscard]] std::int64_t to_number(From value) noexcept {
    if constexpr (std::is_same_v<From, Bytes16>) {
        return static_cast<std::int64_t>(value.low);
    } else {
        return static_cast<std::int64_t>(value);
    }
}

template <typename T>
[[nodiscard]] std::uint64_t to_unsigned(T value) noexcept {
    if constexpr (std::is_same_v<T, Bytes16>) {
        return value.low;
    } else {
        return static_cast<std::make_unsigned_t<T>>(value);
    }
}

// Copies numbers, to another width or to their own, which is that of rows that could not become narrow: what does not
// fit another width loses its upper bits.
template <typename From, typename To>
void convert_numbers(
    std::byte* __restrict to, std::byte const* __restrict from, std::int64_t count) noexcept {
    for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<From, To>) {
            store(to, i, load<From>(from, i));
        } else {
            store(to, i, from_number<To>(to_number(load<From>(from, i))));
        }
    }
}
inline void convert_numbers(
    std::byte* to, std::int64_t to_width, std::byte const* from, std::int64_t from_width,
    std::int64_t count) {
    with_signed_type(from_width, [&]<typename From>(From) {
        with_signed_type(to_width, [&]<typename To>(To) { convert_numbers<From, To>(to, from, count); });
    });
}

// The bits that numbers set, with the sign's turned off in negative ones: of all of them together by `or`.
struct Magnitude {
    std::uint64_t bits{0};
    std::uint64_t above{0};  // beyond 64 bits

    template <typename T>
    void add_signed(T value) noexcept {
        if constexpr (std::is_same_v<T, Bytes16>) {
            auto const low = static_cast<std::int64_t>(value.low);
            bits |= value.low ^ static_cast<std::uint64_t>(low >> 63);
            above |= value.high ^ static_cast<std::uint64_t>(low >> 63);
        } else {
            auto const wide = static_cast<std::int64_t>(value);
            bits |= static_cast<std::uint64_t>(wide ^ (wide >> 63));
        }
    }
    // The fewest bytes, 1, 2, 4 or 8, of signed numbers that hold them; 16 when there are none.
    [[nodiscard]] std::int64_t width() const noexcept {
        if (above != 0) {
            return 16;
        }
        auto const needed = std::bit_width(bits) + 1;
        return needed <= 8 ? 1 : needed <= 16 ? 2 : needed <= 32 ? 4 : needed <= 64 ? 8 : 16;
    }
};

}  // namespace rapidsmpf::detail

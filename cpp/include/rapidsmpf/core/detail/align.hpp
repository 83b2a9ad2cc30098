// Sizes that are multiples of something.
#pragma once

#include <concepts>

namespace rapidsmpf {

// The least multiple of `unit` that is not below `size`.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T size, T unit) noexcept {
    return (size + unit - 1) / unit * unit;
}

}  // namespace rapidsmpf

// Searching and reading as the kernels do it: by aligned words, never beyond what may be read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/host/hash.hpp"

namespace rapidsmpf::detail {

// Of ascending `firsts` (firsts[0] <= value), the last index below `count` whose entry is not above `value`. Where
// several are equal, the last of them.
template <typename Entry, typename Value>
RAPIDSMPF_HOST_DEVICE inline std::uint32_t last_not_above(
    Entry const* firsts, std::uint32_t low, std::uint32_t count, Value value) noexcept {
    auto high = count;
    while (high - low > 1) {
        auto const middle = low + (high - low) / 2;
        if (firsts[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// `count` (1 to 8) bytes from any address on, as a number. Reads the aligned 8-byte words that hold them, unless the
// last would reach beyond `limit`: then bytes.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t load_bytes(
    std::uint8_t const* bytes, std::uint32_t count, std::uint8_t const* limit) noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(bytes);
    auto const shift = static_cast<std::uint32_t>(address % 8);
    auto const* const words = reinterpret_cast<std::uint64_t const*>(address - shift);
    auto const needs_two = shift + count > 8;
    if (reinterpret_cast<std::uint8_t const*>(words + (needs_two ? 2 : 1)) > limit) {
        std::uint64_t word{0};
        for (std::uint32_t i = 0; i < count; ++i) {
            word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
        }
        return word;
    }
    auto word = words[0] >> (8 * shift);
    if (needs_two) {
        word |= words[1] << (64 - 8 * shift);
    }
    return count == 8 ? word : word & ((std::uint64_t{1} << (8 * count)) - 1);
}

}  // namespace rapidsmpf::detail

// Copies of bytes by the lanes of a warp, from any place to any other. Words are read whole: up to three bytes before the
// first and behind the last are read, too.
#pragma once

#include <cstdint>
#include <cstring>

#include "pages/lanes.hpp"

namespace rapidsmpf::pages {

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t misalignment(void const* address) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) & 3U);
}

// Of an address that is a multiple of four.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t load_word(std::uint8_t const* address) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<std::uint32_t const*>(address);
#else
    std::uint32_t word;
    std::memcpy(&word, address, sizeof word);
    return word;
#endif
}

// Little-endian, from any address.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t load_word_bytewise(std::uint8_t const* address) {
    return std::uint32_t{address[0]} | std::uint32_t{address[1]} << 8U | std::uint32_t{address[2]} << 16U
           | std::uint32_t{address[3]} << 24U;
}

RAPIDSMPF_DEVICE void store_word(std::uint8_t* address, std::uint32_t word) {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<std::uint32_t*>(address) = word;
#else
    std::memcpy(address, &word, sizeof word);
#endif
}

// The word that begins at the given byte of `low`, and ends in `high`.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t joined_words(
    std::uint32_t low, std::uint32_t high, std::uint32_t byte) {
#ifdef __CUDA_ARCH__
    return __funnelshift_r(low, high, 8 * byte);
#else
    return byte == 0 ? low : (low >> (8 * byte)) | (high << (32 - 8 * byte));
#endif
}

template <typename Lanes>
RAPIDSMPF_DEVICE void copy_bytes(
    Lanes const& lanes, std::uint8_t const* from, std::uint8_t* to, std::uint32_t bytes) {
    constexpr std::uint32_t at_a_time = 4;  // words that a lane has on their way
    lanes.each([&](std::uint32_t lane) {
        auto const to_word = (4 - misalignment(to)) % 4;
        auto const head = to_word < bytes ? to_word : bytes;
        if (lane < head) {
            to[lane] = from[lane];
        }
        auto const words = (bytes - head) / 4;
        auto const tail = head + 4 * words;
        if (lane < bytes - tail) {
            to[tail + lane] = from[tail + lane];
        }
        auto const shift = misalignment(from + head);
        auto const* const in = from + head - shift;
        auto* const out = to + head;
        for (std::uint32_t base = lane; base < words; base += at_a_time * lane_count) {
            std::uint32_t values[at_a_time]{};
            RAPIDSMPF_UNROLL
            for (std::uint32_t i = 0; i < at_a_time; ++i) {
                auto const word = base + i * lane_count;
                if (word < words) {
                    auto const low = load_word(in + std::uint64_t{4} * word);
                    auto const high = shift != 0 ? load_word(in + std::uint64_t{4} * word + 4) : 0;
                    values[i] = joined_words(low, high, shift);
                }
            }
            RAPIDSMPF_UNROLL
            for (std::uint32_t i = 0; i < at_a_time; ++i) {
                auto const word = base + i * lane_count;
                if (word < words) {
                    store_word(out + std::uint64_t{4} * word, values[i]);
                }
            }
        }
    });
}

}  // namespace rapidsmpf::pages

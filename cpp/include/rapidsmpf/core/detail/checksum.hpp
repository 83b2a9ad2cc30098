// Checksums of bytes that travel or are stored. Both find every error within 32 adjacent bits, so every wrong byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rapidsmpf {

// CRC-32 (IEEE 802.3), for small messages between processes.
[[nodiscard]] constexpr std::uint32_t crc32(std::span<std::uint8_t const> bytes) noexcept {
    std::uint32_t crc = 0xFFFFFFFFU;
    for (auto const byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1U) ^ (0xEDB88320U & (0U - (crc & 1U)));
        }
    }
    return ~crc;
}

// CRC-32C (Castagnoli), for all that is larger. Uses the processor's own instruction where there is one (x86-64 with
// SSE4.2), which makes it faster than memory. Pass a former result as `crc` to go on with more bytes.
[[nodiscard]] std::uint32_t crc32c(std::span<std::byte const> bytes, std::uint32_t crc = 0) noexcept;
[[nodiscard]] inline std::uint32_t crc32c(
    std::span<std::uint8_t const> bytes, std::uint32_t crc = 0) noexcept {
    return crc32c(std::as_bytes(bytes), crc);
}

namespace detail {

// The same without the instruction, for processors that lack it and for tests.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<std::byte const> bytes, std::uint32_t crc) noexcept;

}  // namespace detail
}  // namespace rapidsmpf

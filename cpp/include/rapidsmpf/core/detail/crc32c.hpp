// CRC-32C (Castagnoli): finds every error within 32 adjacent bits, so every wrong byte. Uses the processor's own
// instruction where there is one (x86-64 with SSE4.2), which makes it faster than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rapidsmpf {

// The checksum of `bytes`; pass a former result as `crc` to go on with more bytes.
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

// CRC-32C (Castagnoli): finds every error within 32 adjacent bits, so every wrong byte.
#pragma once

#include <cstdint>
#include <span>

namespace rapidsmpf::detail {

// The checksum of `bytes`; pass a former result as `crc` to go on with more bytes.
[[nodiscard]] std::uint32_t crc32c(std::span<std::uint8_t const> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace rapidsmpf::detail

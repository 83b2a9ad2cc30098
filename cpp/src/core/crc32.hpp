// CRC-32 (IEEE 802.3) of small messages between processes; what is large uses CRC-32C.
#pragma once

#include <cstdint>
#include <span>

namespace rapidsmpf {

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

}  // namespace rapidsmpf

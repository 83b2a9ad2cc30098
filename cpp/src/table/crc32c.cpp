#include "crc32c.hpp"

#include <array>
#include <cstddef>
#include <cstring>

namespace rapidsmpf::detail {

namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;  // reflected

// tables[k][b]: the effect of byte b followed by k zero bytes, for eight bytes a step.
constexpr auto tables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> result{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1U) ^ ((value & 1U) != 0 ? polynomial : 0U);
        }
        result[0][byte] = value;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            auto const before = result[k - 1][byte];
            result[k][byte] = (before >> 8U) ^ result[0][before & 0xFFU];
        }
    }
    return result;
}();

}  // namespace

std::uint32_t crc32c(std::span<std::uint8_t const> bytes, std::uint32_t crc) noexcept {
    crc = ~crc;
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data() + i, 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) {
            crc ^= tables[7 - k][(word >> (8 * k)) & 0xFFU];
        }
    }
    for (; i < bytes.size(); ++i) {
        crc = (crc >> 8U) ^ tables[0][(crc ^ bytes[i]) & 0xFFU];
    }
    return ~crc;
}

}  // namespace rapidsmpf::detail

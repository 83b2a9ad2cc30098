#include <rapidsmpf/core/detail/checksum.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
    std::mt19937 random{7};
    std::vector<std::byte> bytes(count);
    for (auto& byte : bytes) {
        byte = static_cast<std::byte>(random());
    }
    return bytes;
}

// The check value of the standard's catalogue, and the same in two pieces.
TEST(Crc32c, IsTheStandardOne) {
    std::vector<std::uint8_t> const text{'1', '2', '3', '4', '5', '6', '7', '8', '9'};
    EXPECT_EQ(crc32c(text), 0xE3069283U);
    EXPECT_EQ(crc32c(std::span{text}.subspan(4), crc32c(std::span{text}.first(4))), 0xE3069283U);
    EXPECT_EQ(detail::crc32c_portable(std::as_bytes(std::span{text}), 0), 0xE3069283U);
}

// 32 bytes of zero, from RFC 3720.
TEST(Crc32c, KnowsTheZerosOfTheRfc) {
    EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAU);
}

// Around the strides of the three streams (3 x 256 and 3 x 4096), at any place in memory.
TEST(Crc32c, InstructionAndTablesAgree) {
    auto const bytes = random_bytes(30'000);
    std::span<std::byte const> const all{bytes};
    for (std::size_t const size : {0, 1, 7, 8, 9, 255, 767, 768, 769, 1536, 12'287, 12'288, 12'289, 25'000}) {
        for (std::size_t start = 0; start < 9; ++start) {
            auto const piece = all.subspan(start, size);
            EXPECT_EQ(crc32c(piece, 17), detail::crc32c_portable(piece, 17)) << size << " from " << start;
        }
    }
}

TEST(Crc32c, SeesEveryFlippedBit) {
    auto bytes = random_bytes(1600);
    auto const before = crc32c(bytes);
    for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
        auto const bit = static_cast<std::byte>(1U << (i % 8));
        bytes[i / 8] ^= bit;
        EXPECT_NE(crc32c(bytes), before);
        bytes[i / 8] ^= bit;
    }
}

}  // namespace
}  // namespace rapidsmpf

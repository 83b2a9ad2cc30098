#include "table/host/bits.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::detail {
namespace {

class Bits : public ::testing::Test {
  protected:
    std::int64_t number(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>{low, high}(random_);
    }
    std::vector<std::uint8_t> random_bytes(std::int64_t count) {
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
        std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(number(0, 255)); });
        return bytes;
    }
    std::mt19937_64 random_{1};
};

// The source is exactly as long as its bits: a sanitizer sees a read beyond it.
TEST_F(Bits, are_copied_between_any_positions_and_counted) {
    for (int round = 0; round < 2000; ++round) {
        auto const count = number(0, 300);
        auto const from_position = number(0, 70);
        auto const to_position = number(0, 130);
        auto const from = random_bytes(bytes_for_bits(from_position + count));
        std::vector<std::uint64_t> to(static_cast<std::size_t>((to_position + count + 63) / 64), 0);
        auto const before = random_bytes(static_cast<std::int64_t>(to.size()) * 8);
        std::copy(before.begin(), before.end(), reinterpret_cast<std::uint8_t*>(to.data()));
        auto const set = copy_bits(
            reinterpret_cast<std::byte*>(to.data()), to_position, from.data(), from_position, count);
        auto const* const result = reinterpret_cast<std::uint8_t const*>(to.data());
        std::int64_t expected{0};
        for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(get_bit(result, to_position + i), get_bit(from.data(), from_position + i));
            expected += get_bit(from.data(), from_position + i) ? 1 : 0;
        }
        for (std::int64_t i = 0; i < (count > 0 ? to_position : 0); ++i) {
            ASSERT_EQ(get_bit(result, i), get_bit(before.data(), i));  // what was there is kept
        }
        ASSERT_EQ(set, expected);
        ASSERT_EQ(count_bits(from.data(), from_position, count), expected);
    }
}

TEST_F(Bits, are_gathered) {
    for (int round = 0; round < 500; ++round) {
        auto const from = random_bytes(40);
        auto const base = number(0, 60);
        std::vector<std::uint16_t> rows(static_cast<std::size_t>(number(0, 200)));
        std::generate(
            rows.begin(), rows.end(), [&] { return static_cast<std::uint16_t>(number(0, 319 - base)); });
        auto const to_position = number(0, 100);
        std::vector<std::uint64_t> to(8, 0);
        auto const set = gather_bits(
            reinterpret_cast<std::byte*>(to.data()), to_position, from.data(), base, rows.data(),
            static_cast<std::int64_t>(rows.size()));
        std::int64_t expected{0};
        for (std::size_t i = 0; i < rows.size(); ++i) {
            auto const bit = get_bit(from.data(), base + rows[i]);
            ASSERT_EQ(
                get_bit(
                    reinterpret_cast<std::uint8_t const*>(to.data()),
                    to_position + static_cast<std::int64_t>(i)),
                bit);
            expected += bit ? 1 : 0;
        }
        ASSERT_EQ(set, expected);
    }
}

TEST_F(Bits, are_filled_where_asked_only) {
    std::vector<std::uint64_t> to(4, 0);
    fill_bits(reinterpret_cast<std::byte*>(to.data()), 3, 150);
    EXPECT_EQ(count_bits(reinterpret_cast<std::uint8_t const*>(to.data()), 0, 256), 150);
    EXPECT_EQ(count_bits(reinterpret_cast<std::uint8_t const*>(to.data()), 3, 150), 150);
}

}  // namespace
}  // namespace rapidsmpf::detail

#include <rapidsmpf/core/detail/align.hpp>

#include <cstdint>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(RoundUp, ToTheNextMultiple) {
    EXPECT_EQ(round_up(0, 8), 0);
    EXPECT_EQ(round_up(1, 8), 8);
    EXPECT_EQ(round_up(8, 8), 8);
    EXPECT_EQ(round_up(std::uint64_t{9}, std::uint64_t{8}), 16U);
    EXPECT_EQ(round_up(std::int64_t{13}, std::int64_t{6}), 18);
}

}  // namespace
}  // namespace rapidsmpf

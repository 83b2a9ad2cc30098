#include <rapidsmpf/memory/detail/placements.hpp>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(Placements, AnOrderHoldsAsLongAsItIsWanted) {
    Placements placements;
    EXPECT_EQ(placements.find(2), nullptr);
    {
        auto const order = placements.advise({1, 0});
        EXPECT_EQ(placements.find(2), order);
        EXPECT_EQ(placements.find(3), nullptr);
    }
    EXPECT_EQ(placements.find(2), nullptr);
}

TEST(Placements, TheLastOrderHolds) {
    Placements placements;
    auto const first = placements.advise({0, 2, 1});
    {
        auto const second = placements.advise({2, 1, 0});
        EXPECT_EQ(placements.find(3), second);
    }
    EXPECT_EQ(placements.find(3), nullptr);  // advice is lost, nothing else
    EXPECT_EQ(*first, (Placements::Order{0, 2, 1}));
}

}  // namespace
}  // namespace rapidsmpf

#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(PartitionOrderHint, AnOrderHoldsAsLongAsItIsWanted) {
    PartitionOrderHint partition_order_hint;
    EXPECT_EQ(partition_order_hint.find(2), nullptr);
    {
        auto const order = partition_order_hint.advise({1, 0});
        EXPECT_EQ(partition_order_hint.find(2), order);
        EXPECT_EQ(partition_order_hint.find(3), nullptr);
    }
    EXPECT_EQ(partition_order_hint.find(2), nullptr);
}

TEST(PartitionOrderHint, TheLastOrderHolds) {
    PartitionOrderHint partition_order_hint;
    auto const first = partition_order_hint.advise({0, 2, 1});
    {
        auto const second = partition_order_hint.advise({2, 1, 0});
        EXPECT_EQ(partition_order_hint.find(3), second);
    }
    EXPECT_EQ(partition_order_hint.find(3), nullptr);  // advice is lost, nothing else
    EXPECT_EQ(*first, (PartitionOrderHint::Order{0, 2, 1}));
}

}  // namespace
}  // namespace rapidsmpf

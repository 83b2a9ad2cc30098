#include "exchange/receive_budget.hpp"

#include <optional>

#include <gtest/gtest.h>

namespace rapidsmpf::exchange {
namespace {

TEST(ReceiveBudget, GrantsUpToTheLimit) {
    ReceiveBudget budget;
    auto a = budget.draw(60);
    auto b = budget.draw(40);
    auto c = budget.draw(1);
    EXPECT_TRUE(a.try_grant(100));
    EXPECT_TRUE(b.try_grant(100));
    EXPECT_FALSE(c.try_grant(100));
    EXPECT_EQ(budget.in_flight(), 100U);
}

TEST(ReceiveBudget, ATicketGivesItsBytesBack) {
    ReceiveBudget budget;
    std::optional a{budget.draw(100)};
    auto b = budget.draw(100);
    EXPECT_TRUE(a->try_grant(100));
    EXPECT_FALSE(b.try_grant(100));
    a.reset();
    EXPECT_TRUE(b.try_grant(100));
    EXPECT_EQ(budget.peak(), 100U);
}

TEST(ReceiveBudget, OneThatIsTooLargeGoesAlone) {
    ReceiveBudget budget;
    std::optional small{budget.draw(1)};
    auto large = budget.draw(1000);
    EXPECT_TRUE(small->try_grant(100));
    EXPECT_FALSE(large.try_grant(100));
    small.reset();
    EXPECT_TRUE(large.try_grant(100));
    auto next = budget.draw(1);
    EXPECT_FALSE(next.try_grant(100));
}

// Otherwise small frames would pass a large one for ever.
TEST(ReceiveBudget, NobodyIsServedBeforeThoseInFront) {
    ReceiveBudget budget;
    std::optional first{budget.draw(10)};
    std::optional large{budget.draw(1000)};
    auto small = budget.draw(1);
    EXPECT_TRUE(first->try_grant(100));
    EXPECT_FALSE(large->try_grant(100));
    EXPECT_FALSE(small.try_grant(100));
    large.reset();  // gives up its place
    EXPECT_TRUE(small.try_grant(100));
}

TEST(ReceiveBudget, AGrantIsForGood) {
    ReceiveBudget budget;
    auto a = budget.draw(10);
    EXPECT_TRUE(a.try_grant(100));
    auto moved = std::move(a);
    EXPECT_TRUE(moved.try_grant(0));
    EXPECT_EQ(budget.in_flight(), 10U);
}

}  // namespace
}  // namespace rapidsmpf::exchange

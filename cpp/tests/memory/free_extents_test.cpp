#include "memory/disk/free_extents.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::detail {
namespace {

TEST(FreeExtents, TakesTheSmallestThatFits) {
    FreeExtents free;
    free.insert({0, 100});
    free.insert({200, 40});
    free.insert({300, 60});
    EXPECT_EQ(free.take(40), (FileRange{200, 40}));
    EXPECT_EQ(free.take(40), (FileRange{300, 40}));
    EXPECT_EQ(free.take(40), (FileRange{0, 40}));
    EXPECT_EQ(free.take(70), std::nullopt);
    EXPECT_EQ(free.total(), 80);
}

TEST(FreeExtents, JoinsNeighbours) {
    FreeExtents free;
    free.insert({0, 10});
    free.insert({20, 10});
    free.insert({40, 10});
    free.insert({10, 10});
    EXPECT_EQ(free.count(), 2U);
    free.insert({30, 10});
    EXPECT_EQ(free.count(), 1U);
    EXPECT_EQ(free.take(50), (FileRange{0, 50}));
    EXPECT_EQ(free.total(), 0);
}

TEST(FreeExtents, DoesNotJoinAcrossGaps) {
    FreeExtents free;
    free.insert({0, 10});
    free.insert({11, 10});
    EXPECT_EQ(free.count(), 2U);
}

TEST(FreeExtents, TakesTheLargest) {
    FreeExtents free;
    EXPECT_EQ(free.take_largest(), std::nullopt);
    free.insert({0, 10});
    free.insert({20, 30});
    EXPECT_EQ(free.take_largest(), (FileRange{20, 30}));
    EXPECT_EQ(free.take_largest(), (FileRange{0, 10}));
}

TEST(FreeExtents, TakesTheOneAtTheEnd) {
    FreeExtents free;
    EXPECT_EQ(free.take_ending_at(30), std::nullopt);
    free.insert({0, 10});
    free.insert({20, 10});
    EXPECT_EQ(free.take_ending_at(31), std::nullopt);
    EXPECT_EQ(free.take_ending_at(30), (FileRange{20, 10}));
    EXPECT_EQ(free.take_ending_at(10), (FileRange{0, 10}));
}

// Whatever is taken and given back: no byte twice, none lost.
TEST(FreeExtents, KeepsEveryByte) {
    constexpr std::int64_t size = 500;
    FreeExtents free;
    free.insert({0, size});
    std::vector<bool> taken(size, false);
    std::vector<FileRange> held;
    std::mt19937 random{3};
    std::int64_t used = 0;
    for (int step = 0; step < 3000; ++step) {
        if (random() % 2 == 0) {
            if (auto const range = free.take(1 + static_cast<std::int64_t>(random() % 40))) {
                for (auto i = range->offset; i < range->end(); ++i) {
                    ASSERT_FALSE(taken[static_cast<std::size_t>(i)]);
                    taken[static_cast<std::size_t>(i)] = true;
                }
                used += range->length;
                held.push_back(*range);
            }
        } else if (!held.empty()) {
            std::swap(held[random() % held.size()], held.back());
            for (auto i = held.back().offset; i < held.back().end(); ++i) {
                taken[static_cast<std::size_t>(i)] = false;
            }
            used -= held.back().length;
            free.insert(held.back());
            held.pop_back();
        }
        ASSERT_EQ(free.total() + used, size);
    }
    for (auto const& range : held) {
        free.insert(range);
    }
    EXPECT_EQ(free.count(), 1U);
}

}  // namespace
}  // namespace rapidsmpf::detail

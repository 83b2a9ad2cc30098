#include <rapidsmpf/core/detail/free_extents.hpp>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

using Extents = FreeExtents<std::int64_t>;
using Range = Extents::Range;

TEST(FreeExtents, TakesTheSmallestThatFits) {
    Extents free;
    free.insert({0, 100});
    free.insert({200, 40});
    free.insert({300, 60});
    EXPECT_EQ(free.take(40), (Range{200, 40}));
    EXPECT_EQ(free.take(40), (Range{300, 40}));
    EXPECT_EQ(free.take(40), (Range{0, 40}));
    EXPECT_EQ(free.take(70), std::nullopt);
    EXPECT_EQ(free.total(), 80);
}

TEST(FreeExtents, JoinsNeighbours) {
    Extents free;
    free.insert({0, 10});
    free.insert({20, 10});
    free.insert({40, 10});
    EXPECT_EQ(free.insert({10, 10}), (Range{0, 30}));
    EXPECT_EQ(free.count(), 2U);
    EXPECT_EQ(free.insert({30, 10}), (Range{0, 50}));
    EXPECT_EQ(free.count(), 1U);
    EXPECT_EQ(free.take(50), (Range{0, 50}));
    EXPECT_EQ(free.total(), 0);
}

TEST(FreeExtents, DoesNotJoinAcrossGaps) {
    Extents free;
    free.insert({0, 10});
    free.insert({11, 10});
    EXPECT_EQ(free.count(), 2U);
}

TEST(FreeExtents, TakesTheLargest) {
    Extents free;
    EXPECT_EQ(free.take_largest(), std::nullopt);
    free.insert({0, 10});
    free.insert({20, 30});
    EXPECT_EQ(free.take_largest(), (Range{20, 30}));
    EXPECT_EQ(free.take_largest(), (Range{0, 10}));
}

TEST(FreeExtents, TakesTheOneAtTheEnd) {
    Extents free;
    EXPECT_EQ(free.take_ending_at(30), std::nullopt);
    free.insert({0, 10});
    free.insert({20, 10});
    EXPECT_EQ(free.take_ending_at(31), std::nullopt);
    EXPECT_EQ(free.take_ending_at(30), (Range{20, 10}));
    EXPECT_EQ(free.take_ending_at(10), (Range{0, 10}));
}

// Whatever the test takes and returns: no byte twice, none lost.
TEST(FreeExtents, KeepsEveryByte) {
    constexpr std::int64_t size = 500;
    Extents free;
    free.insert({0, size});
    std::vector<bool> taken(size, false);
    std::vector<Range> held;
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
}  // namespace rapidsmpf

// Row groups are grouped into passes, and the column chunks of a pass laid out on the device.
#include "compute/scan/passes.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::compute {
namespace {

std::vector<RowGroupSize> row_groups(std::vector<std::int64_t> const& rows, std::int64_t bytes_per_row = 1) {
    std::vector<RowGroupSize> groups;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        groups.push_back(RowGroupSize{0, static_cast<std::int32_t>(i), rows[i], rows[i] * bytes_per_row, 0});
    }
    return groups;
}

TEST(Passes, HoldNeighbours) {
    auto const groups = row_groups({10, 10, 10, 10});
    auto const passes = make_passes(groups, 20, 1000);
    EXPECT_EQ(passes, (std::vector<Pass>{{0, 2, 20}, {2, 4, 20}}));
}

TEST(Passes, HoldOneRowGroupAtLeast) {
    auto const passes = make_passes(row_groups({100, 100}), 20, 1);
    EXPECT_EQ(passes, (std::vector<Pass>{{0, 1, 100}, {1, 2, 100}}));
}

TEST(Passes, HoldNoMoreBytesThanGiven) {
    auto const passes = make_passes(row_groups({10, 10, 10, 10}, 10), 1000, 200);
    EXPECT_EQ(passes, (std::vector<Pass>{{0, 2, 20}, {2, 4, 20}}));
}

TEST(Passes, AreOfAboutTheSameSize) {
    // Seven full passes and a rest of four row groups would leave most threads idle at the end.
    std::vector<std::int64_t> rows(74, 100);
    auto const passes = make_passes(row_groups(rows), 1000, 1 << 30);
    ASSERT_EQ(passes.size(), 8U);
    auto const [smallest, largest] = std::ranges::minmax(passes, {}, &Pass::rows);
    EXPECT_LE(largest.rows - smallest.rows, 100);
    EXPECT_LE(largest.rows, 1000);
}

TEST(Passes, DoNotMixSchemas) {
    auto groups = row_groups({10, 10, 10});
    groups[1].file = 1;
    groups[1].schema = 1;
    groups[2].file = 2;
    groups[2].schema = 1;
    auto const passes = make_passes(groups, 1000, 1000);
    EXPECT_EQ(passes, (std::vector<Pass>{{0, 1, 10}, {1, 3, 20}}));
}

TEST(Passes, BeginAndEndSmall) {
    auto const groups = row_groups(std::vector<std::int64_t>(40, 10));
    auto const even = make_passes(groups, 160, 1000);
    ASSERT_EQ(even.size(), 3U);
    auto const passes = with_small_edges(groups, even, 20);
    EXPECT_EQ(
        passes, (std::vector<Pass>{
                    {0, 2, 20}, {2, 6, 40}, {6, 13, 70}, even[1], {27, 34, 70}, {34, 38, 40}, {38, 40, 20}}));
    EXPECT_EQ(with_small_edges(groups, even, 0), even);
    EXPECT_TRUE(with_small_edges(groups, {}, 20).empty());
}

TEST(Passes, OfAnySizesAreDividedWithoutLoss) {
    std::mt19937 random{7};
    for (int i = 0; i < 500; ++i) {
        std::vector<std::int64_t> rows(1 + random() % 30);
        std::ranges::generate(
            rows, [&] { return static_cast<std::int64_t>(random() % 4 * (random() % 50)); });
        auto const groups = row_groups(rows);
        auto const even = make_passes(groups, 1 + random() % 300, 1000);
        auto const passes = with_small_edges(groups, even, random() % 100);
        std::int64_t sum = 0;
        std::size_t end = 0;
        for (auto const& pass : passes) {
            EXPECT_GE(pass.begin, end);
            EXPECT_LT(pass.begin, pass.end);
            EXPECT_GT(pass.rows, 0);
            end = pass.end;
            std::int64_t own = 0;
            for (auto j = pass.begin; j < pass.end; ++j) {
                own += rows[j];
            }
            EXPECT_EQ(own, pass.rows);
            sum += own;
        }
        EXPECT_EQ(sum, std::reduce(rows.begin(), rows.end()));
    }
}

TEST(Passes, HaveRows) {
    EXPECT_TRUE(make_passes(row_groups({}), 10, 10).empty());
    EXPECT_TRUE(make_passes(row_groups({0, 0}), 10, 10).empty());
}

TEST(Passes, CoverWhatIsGivenInOrder) {
    std::mt19937 random{7};
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> rows(random() % 50);
        for (auto& n : rows) {
            n = static_cast<std::int64_t>(1 + random() % 100);
        }
        auto const groups = row_groups(rows, static_cast<std::int64_t>(1 + random() % 20));
        auto const max_rows = 1 + random() % 400;
        auto const max_bytes = 1 + random() % 4000;
        std::size_t at = 0;
        for (auto const& pass : make_passes(groups, max_rows, max_bytes)) {
            ASSERT_EQ(pass.begin, at);
            ASSERT_LT(pass.begin, pass.end);
            std::int64_t sum = 0;
            std::int64_t bytes = 0;
            for (; at < pass.end; ++at) {
                sum += groups[at].rows;
                bytes += groups[at].decoded_bytes;
            }
            ASSERT_EQ(sum, pass.rows);
            if (pass.end - pass.begin > 1) {
                ASSERT_LE(sum, static_cast<std::int64_t>(max_rows));
                ASSERT_LE(bytes, static_cast<std::int64_t>(max_bytes));
            }
        }
        ASSERT_EQ(at, groups.size());
    }
}

TEST(Layout, CopiesNeighboursInOnePiece) {
    // Two columns of two row groups, given in another order than they lie in the file.
    std::vector<ChunkRange> const chunks{{0, 200, 100}, {0, 100, 100}, {0, 1200, 50}, {0, 1100, 90}};
    auto const layout = lay_out(chunks);
    ASSERT_EQ(layout.extents.size(), 3U);
    EXPECT_EQ(layout.extents[0].offset, 100U);
    EXPECT_EQ(layout.extents[0].bytes, 200U);
    EXPECT_EQ(layout.extents[1].offset, 1100U);
    EXPECT_EQ(layout.extents[2].offset, 1200U);
    EXPECT_EQ(layout.places[0], layout.extents[0].place + 100);
    EXPECT_EQ(layout.places[1], layout.extents[0].place);
}

TEST(Layout, PutsExtentsApart) {
    std::mt19937 random{11};
    for (int round = 0; round < 100; ++round) {
        std::vector<ChunkRange> chunks;
        for (std::size_t file = 0; file < 3; ++file) {
            std::uint64_t offset = 4;
            for (auto n = random() % 20; n > 0; --n) {
                auto const bytes = std::size_t{1} + random() % 1000;
                chunks.push_back({file, offset, bytes});
                offset += bytes + (random() % 2 == 0 ? 0 : random() % 500);
            }
        }
        std::ranges::shuffle(chunks, random);
        auto const layout = lay_out(chunks);
        std::size_t end = 0;
        for (auto const& extent : layout.extents) {
            ASSERT_EQ(extent.place % 256, 0U);
            ASSERT_GE(extent.place, end);
            end = extent.place + extent.bytes;
        }
        ASSERT_LE(end, layout.bytes);
        for (std::size_t i = 0; i < chunks.size(); ++i) {
            auto const holds = [&](Extent const& extent) {
                return extent.file == chunks[i].file && extent.offset <= chunks[i].offset
                       && chunks[i].offset + chunks[i].bytes <= extent.offset + extent.bytes
                       && layout.places[i] == extent.place + (chunks[i].offset - extent.offset);
            };
            ASSERT_EQ(std::ranges::count_if(layout.extents, holds), 1);
        }
    }
}

}  // namespace
}  // namespace rapidsmpf::compute

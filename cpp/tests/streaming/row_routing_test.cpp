#include <rapidsmpf/streaming/row_routing.hpp>

#include <algorithm>
#include <map>
#include <stdexcept>

#include <gtest/gtest.h>

#include <rapidsmpf/table/packed.hpp>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

class RowRoutingTest : public ::testing::Test {
  protected:
    std::shared_ptr<BufferResource> resource = BufferResource::make();

    std::map<coll::PartitionId, Rows> route(
        RowRouting const& routing, Rows const& rows, std::uint32_t partitions) {
        auto const packer = routing.bind(*testing::row_schema(), partitions, {}, resource);
        std::map<coll::PartitionId, Rows> result;
        for (auto& [partition, packed] : packer(make_table(rows))) {
            result[partition] = testing::rows_of(unpack(std::move(packed)));
        }
        return result;
    }
};

TEST_F(RowRoutingTest, HashKeepsEqualKeysTogether) {
    Rows rows;
    for (int i = 0; i < 1000; ++i) {
        rows.emplace_back(i % 50, "text");
    }
    auto const parts = route(RowRouting::by_hash({"key"}), rows, 8);
    std::map<std::int64_t, coll::PartitionId> home;
    std::size_t total = 0;
    for (auto const& [partition, part] : parts) {
        EXPECT_LT(partition, 8U);
        total += part.size();
        for (auto const& row : part) {
            EXPECT_EQ(home.emplace(row.key, partition).first->second, partition);
        }
    }
    EXPECT_EQ(total, rows.size());
    EXPECT_GT(parts.size(), 1U);
}

TEST_F(RowRoutingTest, ColumnGivesThePartitionAndStays) {
    auto const rows = count_rows(0, 100, 3);
    auto const parts = route(RowRouting::by_column("target"), rows, 4);
    ASSERT_EQ(parts.size(), 3U);  // no chunk for partition 3, which has no rows
    for (auto const& [partition, part] : parts) {
        Rows expected;
        std::ranges::copy_if(
            rows, std::back_inserter(expected), [p = partition](auto const& row) { return row.target == p; });
        EXPECT_EQ(part, expected);
    }
}

TEST_F(RowRoutingTest, OnePartitionTakesAll) {
    auto const parts = route(RowRouting::to_partition(2), count_rows(0, 10), 3);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts.at(2), count_rows(0, 10));
}

TEST_F(RowRoutingTest, NoRowsGoNowhere) {
    EXPECT_TRUE(route(RowRouting::by_hash({"key"}), {}, 3).empty());
    EXPECT_TRUE(route(RowRouting::by_column("target"), {}, 3).empty());
    EXPECT_TRUE(route(RowRouting::to_partition(0), {}, 3).empty());
}

TEST_F(RowRoutingTest, ChecksItsArguments) {
    auto const schema = testing::row_schema();
    EXPECT_THROW((void)RowRouting::by_hash({}), std::invalid_argument);
    EXPECT_THROW((void)RowRouting::by_hash({"nope"}).bind(*schema, 2, {}, resource), std::invalid_argument);
    EXPECT_THROW((void)RowRouting::by_column("nope").bind(*schema, 2, {}, resource), std::invalid_argument);
    EXPECT_THROW((void)RowRouting::to_partition(2).bind(*schema, 2, {}, resource), std::out_of_range);
    EXPECT_THROW((void)RowRouting::by_hash({"key"}).bind(*schema, 0, {}, resource), std::invalid_argument);
}

TEST_F(RowRoutingTest, RejectsTargetsThatAreNotThere) {
    auto const packer = RowRouting::by_column("target").bind(*testing::row_schema(), 2, {}, resource);
    EXPECT_THROW((void)packer(make_table(count_rows(0, 10, 5))), std::out_of_range);
}

}  // namespace
}  // namespace rapidsmpf::streaming

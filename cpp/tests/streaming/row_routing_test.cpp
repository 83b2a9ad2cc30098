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
        for (auto& [partition, packed] : packer(TableBatch{make_table(rows)})) {
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

// Keys that fit fewer bytes in one batch than in another meet all the same.
TEST_F(RowRoutingTest, NarrowRowsGoWherePlainOnesGo) {
    for (auto const scale : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 40}) {
        Rows rows;
        for (int i = 0; i < 1000; ++i) {
            rows.emplace_back((i % 50) * scale, "text");
        }
        EXPECT_EQ(
            route(RowRouting::by_hash({"key"}, 7, RowForm::narrow), rows, 8),
            route(RowRouting::by_hash({"key"}, 7), rows, 8));
    }
    auto const rows = count_rows(0, 100, 3);
    EXPECT_EQ(
        route(RowRouting::by_column("target", RowForm::narrow), rows, 4),
        route(RowRouting::by_column("target"), rows, 4));
    EXPECT_TRUE(route(RowRouting::by_hash({"key"}, 0, RowForm::narrow), {}, 3).empty());
}

TEST_F(RowRoutingTest, NarrowRowsTakeFewerBytes) {
    auto const bytes = [&](RowRouting const& routing) {
        std::size_t total = 0;
        std::size_t unpacked = 0;
        auto const packer = routing.bind(*testing::row_schema(), 4, {}, resource);
        std::vector<Table> const tables{
            make_table(count_rows(0, 10'000, 3)), make_table(count_rows(0, 10'000, 3))};
        for (auto const& [partition, packed] : packer(TableBatch{tables})) {
            total += packed.data->size();
            unpacked += packed_info(packed.metadata).unpacked_size;
        }
        return std::pair{total, unpacked};
    };
    auto const plain = bytes(RowRouting::by_column("target"));
    auto const narrow = bytes(RowRouting::by_column("target", RowForm::narrow));
    EXPECT_EQ(plain.first, plain.second);
    EXPECT_LT(narrow.first, plain.first * 3 / 4);
    EXPECT_NEAR(
        static_cast<double>(narrow.second), static_cast<double>(plain.second),
        0.2 * static_cast<double>(plain.second));
}

TEST_F(RowRoutingTest, RejectsTargetsThatAreNotThere) {
    auto const packer = RowRouting::by_column("target").bind(*testing::row_schema(), 2, {}, resource);
    EXPECT_THROW((void)packer(TableBatch{make_table(count_rows(0, 10, 5))}), std::out_of_range);
    auto const narrow =
        RowRouting::by_column("target", RowForm::narrow).bind(*testing::row_schema(), 2, {}, resource);
    EXPECT_THROW((void)narrow(TableBatch{make_table(count_rows(0, 10, 5))}), std::out_of_range);
}

}  // namespace
}  // namespace rapidsmpf::streaming

#include <rapidsmpf/streaming/table_batch.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

Rows rows_of_all(std::vector<Table> const& tables) {
    Rows rows;
    for (auto const& table : tables) {
        testing::append(rows, table);
    }
    return rows;
}

TEST(TableBatch, OneTableIsItself) {
    auto resource = BufferResource::make();
    auto const table = make_table(count_rows(0, 10));
    TableBatch const batch{table};
    EXPECT_EQ(batch.num_rows(), 10);
    EXPECT_EQ(batch.byte_size(), table.byte_size());
    EXPECT_EQ(batch.combine(*resource).owner(), table.owner());
}

TEST(TableBatch, ManyTablesBecomeOne) {
    auto resource = BufferResource::make();
    std::vector<Table> tables;
    for (int i = 0; i < 5; ++i) {
        tables.push_back(make_table(count_rows(i * 10, 10)));
    }
    TableBatch const batch{std::move(tables)};
    EXPECT_EQ(batch.num_rows(), 50);
    EXPECT_EQ(testing::rows_of(batch.combine(*resource)), count_rows(0, 50));
}

TEST(TableBatch, NeedsATable) {
    EXPECT_THROW(TableBatch{std::vector<Table>{}}, std::invalid_argument);
}

TEST(TableBatch, DescribesItsBytes) {
    auto table = make_table(count_rows(0, 10));
    auto const bytes = table.byte_size();
    Message const message{0, TableBatch{std::move(table)}};
    EXPECT_EQ(message.description().bytes(MemoryType::HOST), bytes);
    EXPECT_TRUE(message.description().spillable());
}

TEST(Cut, KeepsATableWithinTheLimits) {
    auto const table = make_table(count_rows(0, 10));
    auto const pieces = split_table(table, BatchSizes{});
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces.front().num_rows(), 10);
}

TEST(Cut, DropsATableWithoutRows) {
    EXPECT_TRUE(split_table(make_table({}), BatchSizes{}).empty());
}

TEST(Cut, KeepsToTheMostRows) {
    BatchSizes sizes;
    sizes.most_rows = 4;
    auto const pieces = split_table(make_table(count_rows(0, 10)), sizes);
    for (auto const& piece : pieces) {
        EXPECT_LE(piece.num_rows(), 4);
    }
    EXPECT_EQ(pieces.size(), 3U);
    EXPECT_EQ(rows_of_all(pieces), count_rows(0, 10));
}

TEST(Cut, KeepsToTheMostBytes) {
    BatchSizes sizes;
    auto const table = make_table(count_rows(0, 1000));
    sizes.most_bytes = table.byte_size() / 7;
    auto const pieces = split_table(table, sizes);
    EXPECT_GE(pieces.size(), 7U);
    EXPECT_EQ(rows_of_all(pieces), count_rows(0, 1000));
}

TEST(Cut, NeverMakesEmptyPieces) {
    BatchSizes sizes;
    sizes.most_bytes = 1;
    auto const pieces = split_table(make_table(count_rows(0, 5)), sizes);
    EXPECT_EQ(pieces.size(), 5U);
}

TEST(BatchSizes, MustBePositive) {
    BatchSizes sizes;
    sizes.most_rows = 0;
    EXPECT_THROW(sizes.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf::streaming

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actors.hpp>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

class ArrowSourceTest : public ::testing::Test {
  protected:
    Context context{config::Options{}, nullptr, BufferResource::make()};
    ChannelPtr channel = context.create_channel();
    BatchSizes sizes;

    std::future<void> start(ArrowStreamOwner stream) {
        channel->set_outside_consumer();
        std::vector<Actor> actors;
        actors.push_back(
            arrow_source(context, std::make_shared<TableReader>(std::move(stream)), channel, sizes));
        return context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    }
    std::vector<TableBatch> receive_all() {
        std::vector<TableBatch> batches;
        while (auto message = channel->receive_blocking()) {
            EXPECT_EQ(message->sequence(), batches.size());
            batches.push_back(message->release<TableBatch>());
        }
        return batches;
    }
    static Rows rows_of(std::vector<TableBatch> const& batches) {
        Rows rows;
        for (auto const& batch : batches) {
            for (auto const& table : batch.tables()) {
                testing::append(rows, table);
            }
        }
        return rows;
    }
};

TEST_F(ArrowSourceTest, GroupsSmallTables) {
    sizes.enough_rows = 10;
    auto network = start(testing::stream_of_rows(count_rows(0, 35), 3));
    auto const batches = receive_all();
    network.get();
    ASSERT_EQ(batches.size(), 3U);
    EXPECT_EQ(batches[0].num_rows(), 12);
    EXPECT_EQ(batches[0].tables().size(), 4U);
    EXPECT_EQ(batches[2].num_rows(), 11);
    EXPECT_EQ(rows_of(batches), count_rows(0, 35));
}

TEST_F(ArrowSourceTest, CutsLargeTables) {
    sizes.enough_rows = 10;
    sizes.most_rows = 20;
    auto network = start(testing::stream_of_rows(count_rows(0, 100), 100));
    auto const batches = receive_all();
    network.get();
    EXPECT_EQ(batches.size(), 5U);
    EXPECT_EQ(rows_of(batches), count_rows(0, 100));
}

TEST_F(ArrowSourceTest, SendsNothingForTablesWithoutRows) {
    auto network = start(testing::stream_of({make_table({}), make_table({})}));
    EXPECT_TRUE(receive_all().empty());
    network.get();
}

TEST_F(ArrowSourceTest, PassesTheProducersErrorOn) {
    auto network = start(testing::stream_of({make_table(count_rows(0, 5))}, "the disk is on fire"));
    EXPECT_THROW((void)receive_all(), std::runtime_error);
    try {
        network.get();
        FAIL() << "no error";
    } catch (std::runtime_error const& error) {
        EXPECT_NE(std::string{error.what()}.find("the disk is on fire"), std::string::npos) << error.what();
    }
}

TEST_F(ArrowSourceTest, ClosesTheProducerWhenNoMoreIsWanted) {
    sizes.enough_rows = 1;
    auto released = std::make_shared<bool>(false);
    std::vector<Table> tables(100, make_table(count_rows(0, 5)));
    auto network = start(testing::stream_of(std::move(tables), "never reached", released));
    EXPECT_TRUE(channel->receive_blocking().has_value());
    EXPECT_FALSE(*released);
    channel->shutdown();
    network.get();
    EXPECT_TRUE(*released);
}

TEST_F(ArrowSourceTest, NeedsAReader) {
    EXPECT_THROW((void)arrow_source(context, nullptr, channel), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf::streaming

#include <rapidsmpf/streaming/partition.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/single.hpp>
#include <rapidsmpf/streaming/collective_output.hpp>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

constexpr coll::Timeout soon = std::chrono::seconds{60};

class PartitionTest : public ::testing::TestWithParam<int> {
  protected:
    Context context{
        config::Options{{{"num_streaming_threads", std::to_string(GetParam())}}},
        std::make_shared<SingleCommunicator>(), BufferResource::make()};
    ChannelPtr channel = context.create_channel();

    std::shared_ptr<coll::Shuffler> make_shuffler() {
        return std::make_shared<coll::Shuffler>(context.communicator(), 1, 1, context.resource());
    }
    std::shared_ptr<ShuffleInserter> make_inserter(std::shared_ptr<coll::Shuffler> shuffler) {
        return std::make_shared<ShuffleInserter>(
            std::move(shuffler), RowRouting::to_partition(0), *testing::row_schema(), context.resource());
    }
    Rows shuffled(std::shared_ptr<coll::Shuffler> shuffler) {
        ShuffleOutput output{std::move(shuffler), testing::row_schema(), context.resource()};
        Rows rows;
        while (auto table = output.next(soon)) {
            testing::append(rows, *table);
        }
        return rows;
    }
};

TEST_P(PartitionTest, InsertsInTheOrderOfSequenceNumbers) {
    auto shuffler = make_shuffler();
    auto inserter = make_inserter(shuffler);
    for (int i = 9; i >= 0; --i) {
        inserter->insert(static_cast<std::uint64_t>(i), TableBatch{make_table(count_rows(i * 10, 10))});
    }
    inserter->finish();
    EXPECT_EQ(inserter->inserted().rows(), 100);
    EXPECT_GT(inserter->inserted().bytes(), 0U);
    inserter.reset();
    EXPECT_EQ(shuffled(std::move(shuffler)), count_rows(0, 100));
}

TEST_P(PartitionTest, SaysWhichBatchIsMissing) {
    auto inserter = make_inserter(make_shuffler());
    inserter->insert(0, TableBatch{make_table(count_rows(0, 1))});
    inserter->insert(2, TableBatch{make_table(count_rows(0, 1))});
    try {
        inserter->finish();
        FAIL() << "no error";
    } catch (std::logic_error const& error) {
        EXPECT_NE(std::string{error.what()}.find("batch 1 "), std::string::npos) << error.what();
    }
}

TEST_P(PartitionTest, ManyThreadsKeepTheOrder) {
    auto shuffler = make_shuffler();
    std::vector<Actor> actors;
    actors.push_back(shuffle_input(context, channel, make_inserter(shuffler)));
    channel->set_outside_producer();
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    for (std::uint64_t i = 0; i < 200; ++i) {
        // Batches of different sizes take different times.
        auto rows =
            count_rows(static_cast<std::int64_t>(i) * 100, 1 + static_cast<std::int64_t>(i * 37 % 100));
        ASSERT_TRUE(channel->send_blocking(Message{i, TableBatch{make_table(rows)}}));
    }
    channel->finish();
    network.get();
    auto const rows = shuffled(std::move(shuffler));
    EXPECT_TRUE(std::ranges::is_sorted(rows, {}, &testing::Row::key));
    std::size_t expected = 0;
    for (std::size_t i = 0; i < 200; ++i) {
        expected += 1 + i * 37 % 100;
    }
    EXPECT_EQ(rows.size(), expected);
}

TEST_P(PartitionTest, AFailedWorkerStopsTheProducerAndFinishesNothing) {
    auto shuffler = make_shuffler();
    auto inserter = std::make_shared<ShuffleInserter>(
        shuffler, RowRouting::by_column("target"), *testing::row_schema(), context.resource());
    std::vector<Actor> actors;
    actors.push_back(shuffle_input(context, channel, inserter));
    channel->set_outside_producer();
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    auto send = [&] {
        for (std::uint64_t i = 0;; ++i) {
            // Target 1 does not exist: from the tenth batch on cutting fails.
            auto rows = count_rows(0, 10, i < 10 ? 1 : 2);
            (void)channel->send_blocking(Message{i, TableBatch{make_table(rows)}});
        }
    };
    EXPECT_THROW(send(), std::out_of_range);
    EXPECT_THROW(network.get(), std::out_of_range);
    EXPECT_THROW((void)shuffler->wait_any(std::chrono::milliseconds{1}), TimeoutError);
}

TEST_P(PartitionTest, PacksForAnAllGather) {
    auto allgather = std::make_shared<coll::AllGather>(context.communicator(), 1, context.resource());
    auto inserted = std::make_shared<Inserted>();
    std::vector<Actor> actors;
    actors.push_back(allgather_input(context, channel, allgather, inserted));
    channel->set_outside_producer();
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    for (std::uint64_t i = 0; i < 50; ++i) {
        auto const first = static_cast<std::int64_t>(i) * 10;
        ASSERT_TRUE(channel->send_blocking(Message{i, TableBatch{make_table(count_rows(first, 10))}}));
    }
    channel->finish();
    network.get();
    EXPECT_EQ(inserted->rows(), 500);
    AllGatherOutput output{std::move(allgather), testing::row_schema(), context.resource()};
    Rows rows;
    while (auto table = output.next(soon)) {
        testing::append(rows, *table);
    }
    EXPECT_EQ(rows, count_rows(0, 500));
}

INSTANTIATE_TEST_SUITE_P(Threads, PartitionTest, ::testing::Values(1, 4));

}  // namespace
}  // namespace rapidsmpf::streaming

#include <rapidsmpf/streaming/partition.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/single.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/collective_output.hpp>

#include "about_the_cpu.hpp"
#include "streaming/ranks.hpp"
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

// On two ranks: the network of rank 1 fails while it inserts. Returns what rank 0 hears.
template <typename Collective, typename Input>
std::string error_of_the_other(Input const& input) {
    std::string heard;
    testing::run_all(2, 1, [&](Context const& context) {
        auto const collective = [&] {
            if constexpr (std::is_same_v<Collective, coll::Shuffler>) {
                return std::make_shared<Collective>(context.communicator(), 1, 2, context.resource());
            } else {
                return std::make_shared<Collective>(context.communicator(), 1, context.resource());
            }
        }();
        if (context.communicator()->rank() == 0) {
            try {
                collective->insert_finished();  // may hear of it, too
                if constexpr (std::is_same_v<Collective, coll::Shuffler>) {
                    (void)collective->wait_any(soon);
                } else {
                    (void)collective->wait_and_extract(coll::Ordered::yes, soon);
                }
            } catch (RankFailedError const& error) {
                heard = error.what();
            }
            return;
        }
        auto const channel = context.create_channel();
        auto fail = []() -> Task<void> {
            throw std::runtime_error{"the file is gone"};
            co_return;
        };
        std::vector<Actor> actors;
        actors.push_back(input(context, channel, collective));
        actors.emplace_back("scan", fail(), std::vector<ChannelPtr>{}, std::vector{channel});
        EXPECT_THROW(run_actor_network(*context.executor(), std::move(actors)), std::runtime_error);
    });
    return heard;
}

TEST(ShuffleInput, TellsTheOtherRanksWhyItsNetworkFailed) {
    auto const heard = error_of_the_other<coll::Shuffler>(
        [](Context const& context, ChannelPtr in, std::shared_ptr<coll::Shuffler> shuffler) {
            auto inserter = std::make_shared<ShuffleInserter>(
                std::move(shuffler), RowRouting::to_partition(0), *testing::row_schema(), context.resource());
            return shuffle_input(context, std::move(in), std::move(inserter));
        });
    EXPECT_NE(heard.find("rank 1"), std::string::npos) << heard;
    EXPECT_NE(heard.find("the file is gone"), std::string::npos) << heard;
}

TEST(AllGatherInput, TellsTheOtherRanksWhyItsNetworkFailed) {
    auto const heard = error_of_the_other<coll::AllGather>([](Context const& context, ChannelPtr in,
                                                              std::shared_ptr<coll::AllGather> allgather) {
        return allgather_input(context, std::move(in), std::move(allgather), std::make_shared<Inserted>());
    });
    EXPECT_NE(heard.find("the file is gone"), std::string::npos) << heard;
}

PackedData bytes(BufferResource& resource, std::size_t size) {
    return PackedData{std::vector<std::uint8_t>{1}, resource.allocate(MemoryType::DEVICE, size)};
}

TEST(PartitionChunks, AreDescribedSpilledAndCopied) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = BufferResource::make();
    PartitionMapChunk::Chunks map;
    map.emplace(7, bytes(*resource, 10));
    map.emplace(2, bytes(*resource, 20));
    Message message{3, PartitionMapChunk{std::move(map)}};
    EXPECT_EQ(message.description().bytes(MemoryType::DEVICE), 30U);
    EXPECT_TRUE(message.description().spillable());
    EXPECT_EQ(message.spill(), 30U);
    EXPECT_EQ(message.description().bytes(MemoryType::DISK), 30U);
    EXPECT_FALSE(message.description().spillable());
    auto reservation =
        resource->reserve(MemoryType::DEVICE, message.copy_cost(), AllowOverbooking::yes).first;
    auto copy = message.copy(reservation);
    EXPECT_EQ(copy.description().bytes(MemoryType::DEVICE), 30U);
    EXPECT_EQ(copy.release<PartitionMapChunk>().chunks.at(2).data->size(), 20U);

    std::vector<PackedData> list;
    list.push_back(bytes(*resource, 5));
    Message vector{0, PartitionVectorChunk{std::move(list)}};
    EXPECT_EQ(vector.copy_cost(), 5U);
    EXPECT_EQ(vector.spill(), 5U);
    EXPECT_EQ(vector.release<PartitionVectorChunk>().chunks.at(0).data->mem_type(), MemoryType::DISK);
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
            // Target 1 does not exist: from the tenth batch on partitioning fails.
            auto rows = count_rows(0, 10, i < 10 ? 1 : 2);
            (void)channel->send_blocking(Message{i, TableBatch{make_table(rows)}});
        }
    };
    EXPECT_THROW(send(), std::out_of_range);
    EXPECT_THROW(network.get(), std::out_of_range);
    EXPECT_THROW((void)shuffler->wait_any(std::chrono::milliseconds{1}), RankFailedError);  // it says why
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

#include <algorithm>
#include <stdexcept>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/partition.hpp>

#include "streaming/ranks.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::Rows;

Task<void> collect(ChannelPtr in, Rows* rows) {
    std::uint64_t expected = 0;
    while (auto message = co_await in->receive()) {
        EXPECT_EQ(message->sequence(), expected++);
        testing::append(*rows, message->get<Table>());
    }
}

// Source, shuffle and consumer in one network on every rank.
TEST(CollectiveActors, AShuffleWithinANetwork) {
    testing::run_all(3, 1, [](Context const& context) {
        auto const rank = context.communicator()->rank();
        auto shuffler = std::make_shared<coll::Shuffler>(context.communicator(), 5, 6, context.resource());
        auto inserter = std::make_shared<ShuffleInserter>(
            shuffler, RowRouting::by_column("target"), *testing::row_schema(), context.resource());
        auto output = std::make_shared<ShuffleOutput>(
            shuffler, testing::row_schema(), context.resource(), PartitionOrder::ascending);
        auto in = context.create_channel();
        auto out = context.create_channel();
        BatchSizes sizes;
        sizes.enough_rows = 10;
        Rows rows;
        std::vector<Actor> actors;
        actors.push_back(arrow_source(
            context,
            std::make_shared<TableReader>(testing::stream_of_rows(count_rows(rank * 1000, 1000, 6), 7)), in,
            sizes));
        actors.push_back(shuffle_input(context, in, inserter));
        actors.push_back(shuffle_output(context, output, out));
        actors.emplace_back("collect", collect(out, &rows), std::vector{out}, std::vector<ChannelPtr>{});
        run_actor_network(*context.executor(), std::move(actors));

        Rows expected;
        for (auto const partition : shuffler->local_partitions()) {
            for (std::int64_t source = 0; source < 3; ++source) {
                for (auto const& row : count_rows(source * 1000, 1000, 6)) {
                    if (row.target == partition) {
                        expected.push_back(row);
                    }
                }
            }
        }
        EXPECT_EQ(rows, expected);
    });
}

TEST(CollectiveActors, AnAllGatherWithinANetwork) {
    testing::run_all(3, 2, [](Context const& context) {
        auto const rank = context.communicator()->rank();
        auto allgather = std::make_shared<coll::AllGather>(context.communicator(), 5, context.resource());
        auto output = std::make_shared<AllGatherOutput>(allgather, testing::row_schema(), context.resource());
        auto in = context.create_channel();
        auto out = context.create_channel();
        BatchSizes sizes;
        sizes.enough_rows = 10;
        Rows rows;
        std::vector<Actor> actors;
        actors.push_back(arrow_source(
            context, std::make_shared<TableReader>(testing::stream_of_rows(count_rows(rank * 100, 100), 7)),
            in, sizes));
        actors.push_back(allgather_input(context, in, allgather, std::make_shared<Inserted>()));
        actors.push_back(allgather_output(context, output, out));
        actors.emplace_back("collect", collect(out, &rows), std::vector{out}, std::vector<ChannelPtr>{});
        run_actor_network(*context.executor(), std::move(actors));
        EXPECT_EQ(rows, count_rows(0, 300));
    });
}

// The output waits for a partition that the ranks never finish.
TEST(CollectiveActors, AnErrorElsewhereEndsAWaitForOtherRanks) {
    LoopbackCluster cluster{2};
    Context const context{config::Options{}, cluster[0], BufferResource::make()};
    auto shuffler = std::make_shared<coll::Shuffler>(context.communicator(), 5, 2, context.resource());
    auto output = std::make_shared<ShuffleOutput>(shuffler, testing::row_schema(), context.resource());
    auto out = context.create_channel();
    auto fail = []() -> Task<void> {
        throw std::runtime_error{"a failed neighbour"};
        co_return;
    };
    Rows rows;
    std::vector<Actor> actors;
    actors.push_back(shuffle_output(context, output, out));
    actors.emplace_back("collect", collect(out, &rows), std::vector{out}, std::vector<ChannelPtr>{});
    actors.emplace_back("fail", fail(), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{});
    try {
        run_actor_network(*context.executor(), std::move(actors));
        FAIL() << "no error";
    } catch (std::runtime_error const& error) {
        EXPECT_STREQ(error.what(), "a failed neighbour");
    }
}

}  // namespace
}  // namespace rapidsmpf::streaming

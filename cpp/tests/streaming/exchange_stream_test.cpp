#include <rapidsmpf/streaming/exchange_stream.hpp>

#include <algorithm>
#include <chrono>
#include <latch>
#include <map>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "streaming/ranks.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::read_rows;
using testing::Rows;
using testing::run_all;
using testing::run_ranks;
using testing::stream_of;
using testing::stream_of_rows;

std::uint32_t as_count(Rank ranks) {
    return static_cast<std::uint32_t>(ranks);
}

// Batches of a few rows, so that small data takes every path.
BatchSizes tiny() {
    BatchSizes sizes;
    sizes.enough_rows = 16;
    sizes.most_rows = 40;
    return sizes;
}

std::shared_ptr<coll::Shuffler> make_shuffler(Context const& context, std::uint32_t partitions, OpId op = 3) {
    return std::make_shared<coll::Shuffler>(context.communicator(), op, partitions, context.resource());
}

Rows shuffle(
    Context const& context, ArrowStreamOwner source, RowRouting const& routing, std::uint32_t partitions) {
    auto shuffler = make_shuffler(context, partitions);
    auto drained = drain_into_shuffle(std::move(source), routing, shuffler, context, tiny());
    auto stream = shuffle_output_stream(
        std::move(shuffler), drained.schema, context, PartitionOrder::completion, tiny());
    return read_rows(std::move(stream));
}

class ExchangeStreamTest : public ::testing::TestWithParam<Rank> {};

TEST_P(ExchangeStreamTest, ShuffleByHashLosesNothingAndKeepsKeysTogether) {
    auto const nranks = GetParam();
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        std::mutex mutex;
        Rows all;
        std::map<std::int64_t, Rank> home;
        run_all(nranks, seed, [&](Context const& context) {
            auto const rank = context.communicator()->rank();
            Rows mine;
            for (std::int64_t i = 0; i < 500; ++i) {
                mine.emplace_back(i % 97, "rank " + std::to_string(rank) + " row " + std::to_string(i));
            }
            auto const rows =
                shuffle(context, stream_of_rows(mine, 9), RowRouting::by_hash({"key"}), as_count(nranks) * 2);
            std::lock_guard const lock{mutex};
            for (auto const& row : rows) {
                EXPECT_EQ(home.emplace(row.key, rank).first->second, rank);
                all.push_back(row);
            }
        });
        Rows expected;
        for (Rank rank = 0; rank < nranks; ++rank) {
            for (std::int64_t i = 0; i < 500; ++i) {
                expected.emplace_back(i % 97, "rank " + std::to_string(rank) + " row " + std::to_string(i));
            }
        }
        std::ranges::sort(all);
        std::ranges::sort(expected);
        EXPECT_EQ(all, expected);
    }
}

TEST_P(ExchangeStreamTest, ScatterKeepsTheOrderOfSources) {
    auto const nranks = GetParam();
    run_all(nranks, 1, [&](Context const& context) {
        auto const rank = context.communicator()->rank();
        auto const rows = shuffle(
            context, stream_of_rows(count_rows(rank * 1000, 300, as_count(nranks)), 11),
            RowRouting::by_column("target"), as_count(nranks));
        Rows expected;
        for (Rank source = 0; source < nranks; ++source) {
            for (auto const& row : count_rows(source * 1000, 300, as_count(nranks))) {
                if (row.target == as_count(rank)) {
                    expected.push_back(row);
                }
            }
        }
        EXPECT_EQ(rows, expected);
    });
}

TEST_P(ExchangeStreamTest, GatherGivesOneRankAll) {
    auto const nranks = GetParam();
    auto const root = nranks - 1;
    run_all(nranks, 2, [&](Context const& context) {
        auto const rank = context.communicator()->rank();
        auto const rows = shuffle(
            context, stream_of_rows(count_rows(rank * 100, 100), 7), RowRouting::to_partition(as_count(root)),
            as_count(nranks));
        EXPECT_EQ(rows, rank == root ? count_rows(0, nranks * 100) : Rows{});
    });
}

TEST_P(ExchangeStreamTest, AllGatherIsInRankOrder) {
    auto const nranks = GetParam();
    run_all(nranks, 3, [&](Context const& context) {
        auto const rank = context.communicator()->rank();
        auto allgather = std::make_shared<coll::AllGather>(context.communicator(), 3, context.resource());
        auto drained =
            drain_into_allgather(stream_of_rows(count_rows(rank * 100, 100), 7), allgather, context, tiny());
        EXPECT_EQ(drained.rows, 100);
        auto const rows =
            read_rows(allgather_output_stream(std::move(allgather), drained.schema, context, tiny()));
        EXPECT_EQ(rows, count_rows(0, nranks * 100));
    });
}

TEST_P(ExchangeStreamTest, WorksWithoutAnyRow) {
    run_all(GetParam(), 4, [&](Context const& context) {
        EXPECT_EQ(shuffle(context, stream_of({}), RowRouting::by_hash({"key"}), 4), Rows{});
    });
}

TEST_P(ExchangeStreamTest, OnlyOneRankHasRows) {
    auto const nranks = GetParam();
    std::mutex mutex;
    std::size_t total = 0;
    run_all(nranks, 5, [&](Context const& context) {
        auto const source = context.communicator()->rank() == 0 ? count_rows(0, 1000) : Rows{};
        auto const rows =
            shuffle(context, stream_of_rows(source, 50), RowRouting::by_hash({"key"}), as_count(nranks));
        std::lock_guard const lock{mutex};
        total += rows.size();
    });
    EXPECT_EQ(total, 1000U);
}

TEST_P(ExchangeStreamTest, KeepsTheSchemaWithoutRows) {
    run_all(GetParam(), 6, [&](Context const& context) {
        auto shuffler = make_shuffler(context, 4);
        auto drained = drain_into_shuffle(stream_of({}), RowRouting::by_hash({"key"}), shuffler, context);
        TableReader reader{shuffle_output_stream(std::move(shuffler), drained.schema, context)};
        EXPECT_EQ(*reader.schema(), *testing::row_schema());
        EXPECT_FALSE(reader.next().has_value());
    });
}

TEST_P(ExchangeStreamTest, OutputBatchesAreBounded) {
    auto const nranks = GetParam();
    run_all(nranks, 7, [&](Context const& context) {
        auto shuffler = make_shuffler(context, as_count(nranks));
        auto drained = drain_into_shuffle(
            stream_of_rows(count_rows(0, 1000), 3), RowRouting::by_hash({"key"}), shuffler, context, tiny());
        EXPECT_EQ(drained.rows, 1000);
        TableReader reader{shuffle_output_stream(
            std::move(shuffler), drained.schema, context, PartitionOrder::ascending, tiny())};
        while (auto table = reader.next()) {
            EXPECT_GT(table->num_rows(), 0);
            EXPECT_LE(table->num_rows(), tiny().most_rows);
        }
    });
}

TEST_P(ExchangeStreamTest, AnUnreadStreamBlocksNobody) {
    auto const nranks = GetParam();
    std::mutex mutex;
    std::size_t total = 0;
    run_all(nranks, 8, [&](Context const& context) {
        auto shuffler = make_shuffler(context, as_count(nranks));
        auto drained = drain_into_shuffle(
            stream_of_rows(count_rows(0, 100), 3), RowRouting::by_hash({"key"}), shuffler, context, tiny());
        auto stream = shuffle_output_stream(std::move(shuffler), drained.schema, context);
        if (context.communicator()->rank() == 0) {
            stream.reset();
        } else {
            auto const rows = read_rows(std::move(stream));
            std::lock_guard const lock{mutex};
            total += rows.size();
        }
        // The same operation again, with its id.
        (void)shuffle(context, stream_of_rows(count_rows(0, 10), 3), RowRouting::by_hash({"key"}), 3);
    });
    EXPECT_LE(total, 100U * static_cast<std::size_t>(nranks));
}

TEST_P(ExchangeStreamTest, FreesAllMemory) {
    auto const nranks = GetParam();
    run_all(nranks, 9, [&](Context const& context) {
        auto shuffler = make_shuffler(context, as_count(nranks));
        auto drained = drain_into_shuffle(
            stream_of_rows(count_rows(0, 1000), 10), RowRouting::by_hash({"key"}), shuffler, context, tiny());
        (void)read_rows(shuffle_output_stream(shuffler, drained.schema, context));
        shuffler->shutdown(std::chrono::seconds{60});  // what was inserted has been sent
        shuffler.reset();
        EXPECT_EQ(context.resource()->memory_used(MemoryType::DEVICE), 0);
        EXPECT_EQ(context.resource()->memory_used(MemoryType::HOST), 0);
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeStreamTest, ::testing::Values(1, 2, 3, 4));

TEST(ExchangeStream, AFailingSourceIsReportedAndNeverTakenForItsEnd) {
    LoopbackCluster cluster{2};
    auto const errors = run_ranks(cluster, [](Context const& context) {
        auto source = context.communicator()->rank() == 1
                          ? stream_of({testing::make_table(count_rows(0, 10))}, "no such column")
                          : stream_of_rows(count_rows(0, 100), 10);
        (void)shuffle(context, std::move(source), RowRouting::by_hash({"key"}), 2);
    });
    EXPECT_NE(errors[1].find("no such column"), std::string::npos) << errors[1];
    EXPECT_NE(errors[0].find("rank 1"), std::string::npos) << errors[0];
}

TEST(ExchangeStream, ADeadRankIsNamedByTheOutputStream) {
    LoopbackCluster cluster{3};
    std::latch drained{2};
    auto const errors = run_ranks(cluster, [&](Context const& context) {
        if (context.communicator()->rank() == 2) {
            drained.wait();
            cluster.kill(2, "killed by the test");
            return;
        }
        auto shuffler = make_shuffler(context, 3);
        auto result = drain_into_shuffle(
            stream_of_rows(count_rows(0, 100), 10), RowRouting::by_hash({"key"}), shuffler, context, tiny());
        drained.count_down();
        (void)read_rows(shuffle_output_stream(std::move(shuffler), result.schema, context));
    });
    for (std::size_t rank : {0U, 1U}) {
        EXPECT_NE(errors[rank].find("rank 2"), std::string::npos) << errors[rank];
        EXPECT_NE(errors[rank].find("killed by the test"), std::string::npos) << errors[rank];
    }
}

TEST(ExchangeStream, RanksWithDifferentTypesAreTold) {
    LoopbackCluster cluster{2};
    auto const errors = run_ranks(cluster, [](Context const& context) {
        auto source = testing::stream_of_rows(count_rows(0, 100), 10);
        if (context.communicator()->rank() == 1) {
            auto narrow = testing::make_table(count_rows(0, 100)).select(std::vector<std::size_t>{0, 1});
            narrow.export_stream(source.out());
        }
        (void)shuffle(context, std::move(source), RowRouting::by_hash({"key"}), 2);
    });
    for (auto const& error : errors) {  // each of its own check, or of the other's failure for that reason
        EXPECT_NE(error.find("ranks sent rows of different schemas"), std::string::npos) << error;
    }
}

TEST(ExchangeStream, UnknownKeysListTheColumns) {
    LoopbackCluster cluster{1};
    auto const errors = run_ranks(cluster, [](Context const& context) {
        (void)shuffle(context, stream_of({}), RowRouting::by_hash({"nope"}), 1);
    });
    EXPECT_NE(errors[0].find("nope"), std::string::npos) << errors[0];
    EXPECT_NE(errors[0].find("target"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace rapidsmpf::streaming

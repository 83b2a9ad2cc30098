#include <rapidsmpf/streaming/collectives.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>

#include "streaming/ranks.hpp"

namespace rapidsmpf::streaming {
namespace {

PackedData byte_of(BufferResource& resource, std::uint8_t value) {
    return PackedData{std::vector<std::uint8_t>{value}, resource.allocate(MemoryType::HOST, 0)};
}

Task<void> shuffle_bytes(Context context, bool any) {
    auto const rank = context.communicator()->rank();
    auto const shuffler = std::make_shared<coll::Shuffler>(context.communicator(), 1, 9, context.resource());
    for (std::uint32_t partition = 0; partition < 9; ++partition) {
        shuffler->insert(partition, byte_of(*context.resource(), static_cast<std::uint8_t>(rank)));
    }
    co_await context.executor()->schedule();
    shuffler->insert_finished();
    auto const local = shuffler->local_partitions();
    for (auto partition : local) {
        if (any) {
            partition = co_await async_wait_any(context.executor(), shuffler);
        } else {
            co_await async_wait_on(context.executor(), shuffler, partition);
        }
        auto const chunks = shuffler->extract(partition);
        EXPECT_EQ(chunks.size(), 3);
        EXPECT_TRUE(context.executor()->runs_this_thread());
    }
    std::exception_ptr error;
    try {
        (void)co_await async_wait_any(context.executor(), shuffler);
    } catch (std::out_of_range const&) {
        error = std::current_exception();
    }
    EXPECT_TRUE(error != nullptr);
}

TEST(AsyncCollectives, Shuffle) {
    testing::run_all(3, 1, [](Context const& context) {
        sync_wait(shuffle_bytes(context, true));
        sync_wait(shuffle_bytes(context, false));
        EXPECT_EQ(context.executor()->num_blocking_threads(), 0);
    });
}

Task<void> the_others(Context context) {
    auto const& comm = context.communicator();
    auto const rank = static_cast<std::uint8_t>(comm->rank());
    auto const& executor = context.executor();

    auto const gather = std::make_shared<coll::AllGather>(comm, 2, context.resource());
    gather->insert(0, byte_of(*context.resource(), rank));
    gather->insert_finished();
    auto const chunks = co_await async_wait_and_extract(executor, gather);
    EXPECT_EQ(chunks.size(), 3);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        EXPECT_EQ(chunks[i].metadata.front(), i);
    }

    for (auto const runs_on : {coll::RunsOn::progress_thread, coll::RunsOn::waiting_thread}) {
        std::vector<std::byte> const value{std::byte{1}, static_cast<std::byte>(rank)};
        auto add = [](std::span<std::byte> sum, std::span<std::byte const> next) {
            for (std::size_t i = 0; i < sum.size(); ++i) {
                sum[i] = std::byte(static_cast<int>(sum[i]) + static_cast<int>(next[i]));
            }
        };
        coll::Reduction reduction{add, 0, runs_on};
        auto const reduce = std::make_shared<coll::AllReduce>(comm, 3, value, std::move(reduction));
        auto const sum = co_await async_wait_and_extract(executor, reduce);
        EXPECT_EQ(sum[0], std::byte{3});
        EXPECT_EQ(sum[1], std::byte{3});
    }

    std::vector<std::uint8_t> const plan{7, rank};
    auto const broadcast = std::make_shared<coll::Broadcast>(comm, 4, 1, plan);
    auto const told = co_await async_wait_and_extract(executor, broadcast);
    EXPECT_EQ(told[1], 1);

    std::vector<Rank> const next{(comm->rank() + 1) % 3};
    std::vector<Rank> const previous{(comm->rank() + 2) % 3};
    auto const neighbours =
        std::make_shared<coll::SparseAlltoall>(comm, 5, context.resource(), previous, next);
    neighbours->insert(next.front(), byte_of(*context.resource(), rank));
    neighbours->insert_finished();
    co_await async_wait(executor, neighbours);
    EXPECT_EQ(neighbours->extract(previous.front()).front().metadata.front(), previous.front());

    auto const barrier = std::make_shared<coll::Barrier>(comm, 6);
    co_await async_wait(executor, barrier);
}

TEST(AsyncCollectives, TheOthers) {
    testing::run_all(3, 2, [](Context const& context) {
        sync_wait(the_others(context));
        EXPECT_EQ(context.executor()->num_blocking_threads(), 0);
    });
}

TEST(AsyncCollectives, AWaitCanBeCancelled) {
    LoopbackCluster cluster{2};
    Context const context{config::Options{}, cluster[0], BufferResource::make()};
    auto const barrier = std::make_shared<coll::Barrier>(context.communicator(), 1);
    CancellationSource source;
    auto future = context.executor()->spawn(async_wait(context.executor(), barrier, source.token()));
    source.cancel(std::make_exception_ptr(std::domain_error{"no more"}));
    EXPECT_THROW(future.get(), std::domain_error);
}

TEST(AsyncCollectives, AFailedRankEndsTheWait) {
    LoopbackCluster cluster{2};
    Context const context{config::Options{}, cluster[0], BufferResource::make()};
    auto const shuffler = std::make_shared<coll::Shuffler>(context.communicator(), 1, 2, context.resource());
    auto wait = [](Context on, std::shared_ptr<coll::Shuffler> what) -> Task<void> {
        (void)co_await async_wait_any(on.executor(), what);
    };
    auto future = context.executor()->spawn(wait(context, shuffler));
    RankFailure failure{1, "host", 1, "a failure for the test"};
    context.communicator()->fail(std::move(failure));
    EXPECT_THROW(future.get(), RankFailedError);
}

}  // namespace
}  // namespace rapidsmpf::streaming

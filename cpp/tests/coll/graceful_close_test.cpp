// A rank that closes its communicator in good order: no peer waits for it in vain, and none loses what it has sent.
#include <chrono>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>

#include "coll/loopback_ranks.hpp"
#include "coll/steps.hpp"

namespace rapidsmpf::suite {
namespace {

// The cluster's object goes; its communicators stay with the ranks that hold them.
std::vector<std::shared_ptr<Communicator>> make_ranks(Rank nranks, std::uint64_t seed) {
    LoopbackFaults faults;
    faults.seed = mix(seed * 7 + static_cast<std::uint64_t>(nranks));
    faults.delay_probability = std::array{0.0, 0.3, 0.9}[seed % 3];
    faults.longest_delay = seed % 2 == 0 ? 10 : 200;
    return LoopbackCluster{nranks, faults}.communicators();
}

class GracefulClose : public testing::TestWithParam<Rank> {};

TEST_P(GracefulClose, WhoStillNeedsTheRankRaises) {
    Rank const nranks = GetParam();
    constexpr std::array steps{&shuffle_step, &gather_step,    &reduce_step,
                               &sparse_step,  &broadcast_step, &barrier_step};
    for (std::uint64_t seed = 0; seed < schedules(36); ++seed) {
        auto const leaver = static_cast<Rank>(mix(seed) % static_cast<std::uint64_t>(nranks));
        auto const endings =
            run_owning_ranks(make_ranks(nranks, seed), [&](std::shared_ptr<Communicator>& comm) {
                coll::barrier(comm, 1, patience);
                if (comm->rank() == leaver) {
                    comm.reset();
                    return;
                }
                steps[seed % steps.size()](comm, 2, Draw{seed});
                coll::barrier(comm, 1, patience);  // a rank may have needed nothing in the other
            });
        bool blamed = false;
        for (std::size_t rank = 0; rank < endings.size(); ++rank) {
            auto const& error = endings[rank].error;
            if (static_cast<Rank>(rank) == leaver) {
                ASSERT_EQ(error, "") << "schedule " << seed;
                continue;
            }
            ASSERT_TRUE(endings[rank].rank_failed)
                << "schedule " << seed << ", rank " << rank << ": " << error;
            // Who raises for that rank leaves, too, and may be the one that the next names.
            ASSERT_NE(error.find(" failed: it left before "), std::string::npos)
                << "schedule " << seed << ", rank " << rank << ": " << error;
            blamed = blamed || error.find("rank " + std::to_string(leaver) + " failed: ") == 0;
        }
        ASSERT_TRUE(blamed) << "schedule " << seed;
    }
}

// A rank that never began a collective says no goodbye: the others hear of it from the communicator.
TEST(DepartureWithoutFarewell, WhoWaitsRaises) {
    auto const endings = run_owning_ranks(make_ranks(2, 0), [&](std::shared_ptr<Communicator>& comm) {
        if (comm->rank() == 0) {
            coll::barrier(comm, 1, patience);
        }
    });
    EXPECT_TRUE(endings[0].rank_failed);
    EXPECT_EQ(endings[0].error.find("rank 1 failed: it left before barrier 1 was complete"), 0U);
    EXPECT_EQ(endings[1].error, "");
}

// Each rank leaves as soon as it has its own last result: the others' may still be on their way.
TEST_P(GracefulClose, ResultsOutliveTheRanksThatSentThem) {
    for (std::uint64_t seed = 0; seed < schedules(36); ++seed) {
        auto const endings =
            run_owning_ranks(make_ranks(GetParam(), seed), [&](std::shared_ptr<Communicator>& comm) {
                for (std::uint64_t step = 0; step < 3; ++step) {
                    random_step(comm, static_cast<OpId>(1 + step % 2), 3 * seed + step);
                }
            });
        ASSERT_EQ(errors_of(endings), "") << "schedule " << seed;
    }
}

// A rank may give its chunks and go, without taking any: what the others have for it is dropped.
TEST_P(GracefulClose, ARankMayOnlyGive) {
    Rank const nranks = GetParam();
    auto const n = static_cast<PartitionId>(nranks);
    for (std::uint64_t seed = 0; seed < schedules(24); ++seed) {
        auto const giver = static_cast<Rank>(mix(seed) % static_cast<std::uint64_t>(nranks));
        auto const endings =
            run_owning_ranks(make_ranks(nranks, seed), [&](std::shared_ptr<Communicator>& comm) {
                auto const br = BufferResource::make();
                Rank const me = comm->rank();
                Shuffler shuffler{comm, 2, n, br};
                for (PartitionId p = 0; p < n; ++p) {
                    // What is for the giver is too large to be sent unasked.
                    auto const size = p == static_cast<PartitionId>(giver) ? 200'000U : 300U;
                    shuffler.insert(p, make_chunk(*br, seed, me, p, 0, size));
                }
                shuffler.insert_finished();
                if (me == giver) {
                    return;
                }
                auto const p = static_cast<PartitionId>(me);
                shuffler.wait_on(p, patience);
                SUITE_CHECK(shuffler.extract(p).size() == n);
                shuffler.shutdown(patience);
            });
        ASSERT_EQ(errors_of(endings), "") << "schedule " << seed;
    }
}

// A rank that has all that it wants leaves; what it sends takes longer than it would wait if nothing moved.
TEST(SlowClose, WhatASlowRankLacksIsStillSent) {
    constexpr std::uint32_t chunks = 200;
    auto const start = std::chrono::steady_clock::now();
    auto const endings = run_owning_ranks(make_ranks(2, 0), [&](std::shared_ptr<Communicator>& comm) {
        auto const br = BufferResource::make();
        std::optional<ProgressThread::FunctionId> slow;
        auto const progress = comm->progress_thread();
        if (comm->rank() == 1) {
            slow = progress->add_function([] {
                std::this_thread::sleep_for(std::chrono::milliseconds{1100});
                return ProgressThread::TickResult::idle();
            });
        }
        Shuffler shuffler{comm, 2, 2, br};
        if (comm->rank() == 0) {
            for (std::uint32_t i = 0; i < chunks; ++i) {
                shuffler.insert(1, make_chunk(*br, 1, 0, 1, i, 200'000));  // too large to be sent unasked
            }
        }
        shuffler.insert_finished();
        if (comm->rank() == 0) {
            return;
        }
        shuffler.wait_on(1, patience);
        SUITE_CHECK(shuffler.extract(1).size() == chunks);
        shuffler.shutdown(patience);
        progress->remove_function(*slow);
    });
    EXPECT_EQ(errors_of(endings), "");
    // Else the test shows nothing.
    EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds{3});
}

INSTANTIATE_TEST_SUITE_P(Ranks, GracefulClose, testing::Values(2, 3, 5));

// The ranks free the memory of chunks that none needs any more, and that of the chunks that were kept for both.
TEST(DepartureMemory, DroppedChunksAreFreed) {
    auto const br = BufferResource::make();
    auto const endings = run_owning_ranks(make_ranks(3, 1), [&](std::shared_ptr<Communicator>& comm) {
        AllGather gather{comm, 2, br};
        gather.insert(0, make_chunk(*br, 1, comm->rank(), 0, 0, 300'000));
        if (comm->rank() == 0) {
            gather.insert_finished();
            SUITE_CHECK(gather.wait_and_extract(Ordered::yes, patience).size() == 3);
            return;
        }
        gather.insert_finished();
        if (comm->rank() == 2) {
            return;  // before it has taken anything
        }
        SUITE_CHECK(gather.wait_and_extract(Ordered::yes, patience).size() == 3);
    });
    EXPECT_EQ(errors_of(endings), "");
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
}

}  // namespace
}  // namespace rapidsmpf::suite

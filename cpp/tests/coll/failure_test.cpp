// Ranks that die in the middle of collectives: every survivor hears of it, no rank hangs, nothing is left.
#include <atomic>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/communicator/single.hpp>
#include <rapidsmpf/communicator/split.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "coll/allreduce_suite.hpp"
#include "coll/lifetime_suite.hpp"
#include "coll/loopback_ranks.hpp"
#include "coll/small_suite.hpp"
#include "coll/sparse_alltoall_suite.hpp"

namespace rapidsmpf::suite {
namespace {

// Collectives for ever: ends only by an error.
void work_until_failure(std::shared_ptr<Communicator> const& comm) {
    for (std::uint64_t round = 0;; ++round) {
        ShuffleCase c;
        c.op = static_cast<OpId>(round % 3);
        c.salt = round;
        c.chunks = 3;
        if (round % 2 == 1) {
            c.settings = tiny_settings();
        }
        shuffle(comm, c);
        gather_with_tiny_settings(comm);
        reduce_arrays(comm);
        sparse_exchange(comm, 4, round, 2'000, tiny_settings());
        (void)coll::broadcast_bytes(comm, 4, 0, std::vector<std::uint8_t>(200), patience);
    }
}

class Death : public testing::TestWithParam<Rank> {};

TEST_P(Death, EverySurvivorRaisesOnEverySchedule) {
    Rank const nranks = GetParam();
    for (std::uint64_t seed = 0; seed < schedules(30); ++seed) {
        LoopbackFaults faults;
        faults.seed = seed;
        faults.delay_probability = seed % 2 == 0 ? 0.0 : 0.6;
        faults.dying_rank = static_cast<Rank>(mix(seed) % static_cast<std::uint64_t>(nranks));
        faults.dies_after = mix(seed ^ 77U) % 200;
        LoopbackCluster const cluster{nranks, faults, kind_of_payloads(seed / 2)};
        auto const endings = run_ranks(cluster.communicators(), work_until_failure);
        for (std::size_t rank = 0; rank < endings.size(); ++rank) {
            ASSERT_TRUE(endings[rank].rank_failed)
                << "schedule " << seed << ", rank " << rank << ": " << endings[rank].error;
            ASSERT_EQ(
                endings[rank].error, "rank " + std::to_string(*faults.dying_rank)
                                         + " failed: killed by the test after "
                                         + std::to_string(faults.dies_after) + " messages")
                << "schedule " << seed;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Death, testing::Values(2, 3, 5));

// Every kind of wait ends at once, and every later call raises.
TEST(Failure, PendingAndLaterCallsRaise) {
    LoopbackCluster cluster{3};
    std::atomic<int> waiting{0};
    auto const body = [&](std::shared_ptr<Communicator> const& comm) {
        auto const br = BufferResource::make();
        Shuffler shuffler{comm, 1, 6, br};
        AllGather gather{comm, 2, br};
        if (comm->rank() == 1) {
            while (waiting.load() < 6) {
                waiting.wait(waiting.load());
            }
            cluster.kill(1, "out of patience");
            return;
        }
        auto const mine = static_cast<PartitionId>(comm->rank());
        std::vector<std::function<void()>> const waits{
            [&] { (void)shuffler.wait_any(patience); },
            [&] { shuffler.wait_on(mine, patience); },
            [&] { (void)gather.wait_and_extract(Ordered::yes, patience); },
        };
        std::vector<std::thread> threads;
        std::atomic<int> raised{0};
        for (auto const& wait : waits) {
            threads.emplace_back([&] {
                ++waiting;
                waiting.notify_all();
                try {
                    wait();
                } catch (RankFailedError const& error) {
                    raised += error.rank() == 1 && error.reason() == "out of patience" ? 1 : 0;
                }
            });
        }
        for (auto& thread : threads) {
            thread.join();
        }
        SUITE_CHECK(raised == 3);
        SUITE_THROWS(RankFailedError, shuffler.insert(0, make_chunk(*br, 1, 0, 0, 0, 10)));
        SUITE_THROWS(RankFailedError, shuffler.insert_finished());
        SUITE_THROWS(RankFailedError, shuffler.wait_any());
        SUITE_THROWS(RankFailedError, shuffler.extract(mine));
        SUITE_THROWS(RankFailedError, gather.insert_finished());
        SUITE_THROWS(RankFailedError, (Shuffler{comm, 3, 6, br}));
        SUITE_THROWS(RankFailedError, coll::barrier(comm, 4));
        shuffler.shutdown();
    };
    EXPECT_EQ(errors_of(run_ranks(cluster.communicators(), body)), "");
}

// A part of a communicator fails with it: a member by its rank in the part, anyone else by what the reason says.
TEST(Failure, ReachesThePartsOfACommunicator) {
    LoopbackCluster cluster{4};
    std::atomic<int> waiting{0};
    auto const endings = run_ranks(cluster.communicators(), [&](std::shared_ptr<Communicator> const& comm) {
        auto const part = split(comm, comm->rank() / 2, -comm->rank(), patience);
        coll::barrier(part, 1, patience);
        if (comm->rank() == 3) {
            while (waiting.load() < 3) {
                waiting.wait(waiting.load());
            }
            cluster.kill(3, "out of patience");
            return;
        }
        auto const br = BufferResource::make();
        Shuffler shuffler{part, 1, 6, br};
        ++waiting;
        waiting.notify_all();
        (void)shuffler.wait_any(patience);
    });
    // Rank 2 is in a part with rank 3, which has rank 0 there.
    EXPECT_EQ(endings[2].error, "rank 0 failed: out of patience");
    for (std::size_t const rank : {0, 1}) {
        EXPECT_TRUE(endings[rank].rank_failed);
        EXPECT_NE(
            endings[rank].error.find(
                "rank 3 of the communicator that this one was split from: out of patience"),
            std::string::npos)
            << endings[rank].error;
    }
}

TEST(Failure, ASplitEndsWhenARankDies) {
    for (std::uint64_t seed = 0; seed < schedules(40); ++seed) {
        LoopbackFaults faults;
        faults.seed = seed;
        faults.delay_probability = seed % 2 == 0 ? 0.0 : 0.6;
        faults.dying_rank = static_cast<Rank>(seed % 3);
        faults.dies_after = mix(seed) % 30;
        LoopbackCluster const cluster{3, faults};
        auto const endings =
            run_ranks(cluster.communicators(), [](std::shared_ptr<Communicator> const& comm) {
                for (;;) {
                    auto const part = split(comm, comm->rank() % 2, 0, patience);
                    SUITE_CHECK(part != nullptr);
                }
            });
        for (auto const& ending : endings) {
            ASSERT_TRUE(ending.rank_failed) << "schedule " << seed << ": " << ending.error;
        }
    }
}

TEST(Failure, ASplitNamesTheMissing) {
    LoopbackCluster const cluster{3};
    try {
        (void)split(cluster[0], 0, 0, std::chrono::milliseconds{1});
        FAIL() << "nobody else called it";
    } catch (TimeoutError const& error) {
        EXPECT_NE(std::string{error.what()}.find("rank(s) 1, 2"), std::string::npos) << error.what();
    }
}

TEST(Failure, ASplitCanBeStopped) {
    LoopbackCluster const cluster{2};
    std::stop_source stop;
    stop.request_stop();
    EXPECT_THROW((void)split(cluster[0], 0, 0, std::nullopt, stop.get_token()), TimeoutError);
}

TEST(Failure, ARankThatRaisesEndsTheOthers) {
    LoopbackCluster const cluster{3};
    auto const endings = run_ranks(cluster.communicators(), [](std::shared_ptr<Communicator> const& comm) {
        if (comm->rank() == 2) {
            throw std::runtime_error{"no such column: x"};
        }
        coll::barrier(comm, 1, patience);
    });
    EXPECT_EQ(endings[0].error, "rank 2 failed: no such column: x");
    EXPECT_EQ(endings[1].error, "rank 2 failed: no such column: x");
}

// Only one rank receives it; all are told whose fault it is, that rank itself too.
TEST(Failure, AMalformedMessageEndsAllRanks) {
    for (std::uint64_t seed = 0; seed < schedules(20); ++seed) {
        LoopbackFaults faults;
        faults.seed = seed;
        faults.delay_probability = seed % 2 == 0 ? 0.0 : 0.6;
        LoopbackCluster const cluster{3, faults};
        auto const endings =
            run_ranks(cluster.communicators(), [](std::shared_ptr<Communicator> const& comm) {
                coll::barrier(comm, 1, patience);
                auto const br = BufferResource::make();
                Shuffler shuffler{comm, 2, 6, br};
                if (comm->rank() == 1) {
                    (void)comm->send({1, 2, 3}, 2, Tag{exchange::OperationDispatcher::control_op, 0});
                }
                (void)shuffler.wait_any(patience);
            });
        for (auto const& ending : endings) {
            ASSERT_TRUE(ending.rank_failed) << "schedule " << seed;
            ASSERT_EQ(ending.error, "rank 1 failed: it sent a malformed message: the message ends too early")
                << "schedule " << seed;
        }
    }
}

class FailureByKind : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Kinds, FailureByKind, testing::Values(0, 1));

TEST_P(FailureByKind, MemoryOfInterruptedOperationsComesBack) {
    auto const br = BufferResource::make();
    {
        LoopbackFaults faults;
        faults.dying_rank = 1;
        faults.dies_after = 20;
        LoopbackCluster const cluster{3, faults, kind_of_payloads(GetParam())};
        (void)run_ranks(cluster.communicators(), [&](std::shared_ptr<Communicator> const& comm) {
            ShuffleCase c;
            c.largest = 100'000;
            c.settings = tiny_settings();
            Shuffler shuffler{comm, 1, c.partitions, br, c.assignment, c.settings};
            insert_all(shuffler, *br, c);
            shuffler.insert_finished();
            extract_all(shuffler, c);
        });
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->spill_manager().spill(1), 0U);
    EXPECT_EQ(device::SharedMemory::quarantined_for_testing(), 0U);  // no peer writes any more
}

// The last handle of a communicator goes right after the insertions: the chunks still arrive.
TEST(Farewell, ACommunicatorSendsWhatFinishedOperationsLeft) {
    LoopbackFaults faults;
    faults.seed = 3;
    faults.delay_probability = 0.5;
    std::vector<std::shared_ptr<Communicator>> comms;
    {
        LoopbackCluster const cluster{2, faults};
        comms = cluster.communicators();
    }
    auto body = [&](std::shared_ptr<Communicator> comm) {
        auto const br = BufferResource::make();
        Rank const me = comm->rank();
        Shuffler shuffler{comm, 1, 2, br, PartitionAssignment::round_robin, tiny_settings()};
        comm.reset();
        for (std::uint64_t i = 0; i < 20; ++i) {
            shuffler.insert(0, make_chunk(*br, 1, me, 0, i, 500));
        }
        shuffler.insert_finished();
        if (me == 0) {
            shuffler.wait_on(0, patience);
            SUITE_CHECK(shuffler.extract(0).size() == 40);
        }
    };
    // Each thread holds the only reference to its communicator.
    std::vector<std::thread> threads;
    std::vector<std::string> errors(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank, comm = std::move(comms[rank])]() mutable {
            try {
                body(std::move(comm));
            } catch (std::exception const& error) {
                errors[rank] = error.what();
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Farewell, AnOperationThatNobodyJoinsIsDropped) {
    auto const br = BufferResource::make();
    {
        LoopbackCluster const cluster{2};
        Shuffler const given_up{cluster[0], 1, 2, br};
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
}

}  // namespace
}  // namespace rapidsmpf::suite

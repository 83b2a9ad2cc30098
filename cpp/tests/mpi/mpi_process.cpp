// Point-to-point messages between real processes, over MPI: each rank of a job started by mpirun runs these tests.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/mpi/mpi.hpp>

#include "bootstrap/ranks.hpp"

namespace rapidsmpf {
namespace {

using test::exchange_sizes;
using test::has_pattern;
using test::Pattern;
using test::patterned;
using test::small_message;
using test::wait;
using test::wait_any;
using test::wait_on_progress;

using Requests = std::vector<std::unique_ptr<Communicator::Request>>;

std::shared_ptr<Communicator> make_comm(
    std::string const& chunk_bytes = "", std::shared_ptr<ProgressThread> progress_thread = nullptr) {
    return make_mpi_communicator(
        MPI_Comm_c2f(MPI_COMM_WORLD), config::Options{config::Strings{{"mpi_chunk_bytes", chunk_bytes}}},
        std::move(progress_thread));
}

Rank next_of(Communicator const& comm) {
    return (comm.rank() + 1) % comm.nranks();
}

Rank previous_of(Communicator const& comm) {
    return (comm.rank() + comm.nranks() - 1) % comm.nranks();
}

// Whether the job has one rank only: the tests below need a peer.
bool is_alone() {
    int nranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    return nranks == 1;
}

#define NEEDS_PEERS() \
    if (is_alone()) { \
        return;       \
    }

TEST(MpiProcess, RanksAreThoseOfMpi) {
    auto const comm = make_comm();
    int rank = -1;
    int nranks = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    EXPECT_EQ(comm->rank(), rank);
    EXPECT_EQ(comm->nranks(), nranks);
    EXPECT_NE(comm->str().find("MpiCommunicator(rank=" + std::to_string(rank)), std::string::npos);
}

TEST(MpiProcess, OtherHandlesAreRefused) {
    EXPECT_THROW((void)make_mpi_communicator(MPI_Comm_c2f(MPI_COMM_NULL)), std::invalid_argument);
    for (auto const* const chunk : {"0", "3GB", "many"}) {
        EXPECT_THROW((void)make_comm(chunk), std::invalid_argument) << chunk;
    }
}

class MpiSizes : public testing::TestWithParam<char const*> {};

TEST_P(MpiSizes, EverySizeBetweenEveryPairBothWaysAtOnce) {
    EXPECT_EQ(
        exchange_sizes(*make_comm(GetParam()), {0, 1, 7, 16383, 16384, 16385, 65536, 1 << 20, (5 << 20) + 3}),
        "");
}

// In pieces, too: as messages over 2 GiB travel.
INSTANTIATE_TEST_SUITE_P(Chunks, MpiSizes, testing::Values("", "1000", "65536"));

TEST(MpiProcess, PartOfABufferIsSentIntoPartOfAnother) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 300);
    std::fill(in->mutable_host_bytes().begin(), in->mutable_host_bytes().end(), std::byte{0});
    auto const receiving = comm->recv(in, 100, 50, previous_of(*comm), Tag{1, 0});
    auto const sending =
        comm->send(patterned(br, 1000, me, next_of(*comm), 5), 200, 50, next_of(*comm), Tag{1, 0});
    wait(*comm, *sending);
    wait(*comm, *receiving);
    Pattern const pattern{previous_of(*comm), me, 5};
    auto const bytes = in->host_bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        auto const expected = i >= 100 && i < 150 ? pattern.at(i + 100) : std::uint8_t{0};
        ASSERT_EQ(std::to_integer<std::uint8_t>(bytes[i]), expected) << i;
    }
}

// Large ones come with their bytes behind them, small ones whole; they do not overtake each other.
TEST(MpiProcess, UnaskedMessagesComeInOrderPerSourceWhateverTheirSize) {
    NEEDS_PEERS();
    auto const comm = make_comm("30000");
    auto const me = comm->rank();
    constexpr std::uint64_t count = 60;
    auto const size_of = [](std::uint64_t n) { return n % 3 == 0 ? std::size_t{100'000} + n : n; };
    for (std::uint64_t n = 0; n < count; ++n) {
        for (Rank peer = 0; peer < comm->nranks(); ++peer) {
            if (peer != me) {
                (void)comm->send(small_message(me, peer, n, size_of(n)), peer, Tag{3, 1});
            }
        }
    }
    std::vector<std::uint64_t> expected(static_cast<std::size_t>(comm->nranks()), 0);
    for (std::uint64_t n = 0; n < count * static_cast<std::uint64_t>(comm->nranks() - 1); ++n) {
        auto const arrived = wait_any(*comm, Tag{3, 1});
        auto& number = expected[static_cast<std::size_t>(arrived.source)];
        EXPECT_EQ(arrived.bytes, small_message(arrived.source, me, number, size_of(number)));
        ++number;
    }
    EXPECT_FALSE(comm->recv_any(Tag{3, 1}).has_value());
}

TEST(MpiProcess, TagsDoNotMix) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const me = comm->rank();
    std::vector<Tag> const tags{
        Tag{1, 0}, Tag{1, 1}, Tag{Tag::max_op_id, 7}, Tag{1, 0}.in_context(1),
        Tag{1, 0}.in_context(Tag::max_context)};
    for (std::size_t i = 0; i < tags.size(); ++i) {
        (void)comm->send(small_message(me, next_of(*comm), i, 100), next_of(*comm), tags[i]);
    }
    for (std::size_t i = tags.size(); i-- > 0;) {
        EXPECT_EQ(wait_any(*comm, tags[i]).bytes, small_message(previous_of(*comm), me, i, 100)) << i;
    }
}

TEST(MpiProcess, SendGoesOnWhenItsRequestIsDropped) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    constexpr std::size_t size = 3 << 20;
    comm->send(patterned(br, size, me, next_of(*comm), 1), 0, size, next_of(*comm), Tag{1, 0}).reset();
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
    wait(*comm, *comm->recv(in, 0, size, previous_of(*comm), Tag{1, 0}));
    EXPECT_TRUE(has_pattern(in->host_bytes(), previous_of(*comm), me, 1));
}

TEST(MpiProcess, DroppedReceiveTakesNoMessage) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    std::shared_ptr<Buffer> first = br->allocate(MemoryType::HOST, 100);
    std::fill(first->mutable_host_bytes().begin(), first->mutable_host_bytes().end(), std::byte{7});
    comm->recv(first, 0, 100, previous_of(*comm), Tag{1, 0}).reset();
    // No rank sends before all have dropped their receive.
    MPI_Barrier(MPI_COMM_WORLD);
    (void)comm->send(patterned(br, 100, me, next_of(*comm), 2), 0, 100, next_of(*comm), Tag{1, 0});
    std::shared_ptr<Buffer> second = br->allocate(MemoryType::HOST, 100);
    wait(*comm, *comm->recv(second, 0, 100, previous_of(*comm), Tag{1, 0}));
    EXPECT_TRUE(has_pattern(second->host_bytes(), previous_of(*comm), me, 2));
    EXPECT_EQ(first->host_bytes()[0], std::byte{7});
}

TEST(MpiProcess, MessageOfAnotherSizeIsAnError) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    // Small and large, shorter and longer than what is expected; then a right one.
    for (auto const& [sent, expected] :
         std::vector<std::pair<std::size_t, std::size_t>>{{10, 20}, {20, 10}, {200'000, 10}, {10, 200'000}}) {
        std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, expected);
        auto const receiving = comm->recv(in, 0, expected, previous_of(*comm), Tag{1, 0});
        auto const sending =
            comm->send(patterned(br, sent, me, next_of(*comm), 3), 0, sent, next_of(*comm), Tag{1, 0});
        EXPECT_THROW(wait(*comm, *receiving), std::runtime_error);
        wait(*comm, *sending);
    }
    (void)comm->send(small_message(me, next_of(*comm), 4, 50), next_of(*comm), Tag{1, 0});
    EXPECT_EQ(wait_any(*comm, Tag{1, 0}).bytes, small_message(previous_of(*comm), me, 4, 50));
}

TEST(MpiProcess, WrongPeersAndRangesAreRefused) {
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    std::shared_ptr<Buffer> const buffer = br->allocate(MemoryType::HOST, 10);
    for (Rank const peer : {-1, comm->rank(), comm->nranks()}) {
        EXPECT_THROW((void)comm->send({1}, peer, Tag{1, 0}), std::invalid_argument);
        EXPECT_THROW((void)comm->recv(buffer, 0, 10, peer, Tag{1, 0}), std::invalid_argument);
    }
    NEEDS_PEERS();
    EXPECT_THROW((void)comm->send(buffer, 5, 6, next_of(*comm), Tag{1, 0}), std::invalid_argument);
    EXPECT_THROW((void)comm->recv(buffer, 11, 0, next_of(*comm), Tag{1, 0}), std::invalid_argument);
}

TEST(MpiProcess, WhatIsSentArrivesThoughTheSenderLeavesAtOnce) {
    NEEDS_PEERS();
    auto comm = make_comm();
    auto const br = BufferResource::make();
    constexpr std::size_t size = 2 << 20;
    if (comm->rank() != 0) {
        (void)comm->send(patterned(br, size, comm->rank(), 0, 1), 0, size, 0, Tag{1, 0});
        comm.reset();
        return;
    }
    for (Rank peer = 1; peer < comm->nranks(); ++peer) {
        std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
        wait(*comm, *comm->recv(in, 0, size, peer, Tag{1, 0}));
        EXPECT_TRUE(has_pattern(in->host_bytes(), peer, 0, 1));
    }
}

TEST(MpiProcess, WhoHasLeftIsKnownAndIsNoFailure) {
    NEEDS_PEERS();
    auto comm = make_comm();
    Rank const me = comm->rank();
    if (me == 0) {
        comm.reset();
    } else {
        wait_on_progress(*comm, [&] { return comm->has_closed(0); });
        EXPECT_FALSE(comm->failure());
        // Into the void.
        auto const sending = comm->send({1}, 0, Tag{1, 0});
        EXPECT_TRUE(sending->test());
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiProcess, AbortReachesEveryRank) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    if (comm->rank() == 1) {
        comm->abort("ValueError: enough");
        EXPECT_THROW(comm->check(), RankFailedError);
        return;
    }
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 10);
    auto const receiving = comm->recv(in, 0, 10, 1, Tag{1, 0});
    try {
        wait(*comm, *receiving);
        ADD_FAILURE() << "nobody sent anything";
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.reason(), "ValueError: enough");
        EXPECT_GT(error.pid(), 0);
    }
}

TEST(MpiProcess, ConvictionReachesAllRanks) {
    NEEDS_PEERS();
    auto const comm = make_comm();
    auto const br = BufferResource::make();
    if (comm->rank() == comm->nranks() - 1) {
        comm->report_protocol_violation(0, "it sent nonsense");
    }
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 10);
    auto const receiving = comm->recv(in, 0, 10, next_of(*comm), Tag{1, 0});
    try {
        wait(*comm, *receiving);
        ADD_FAILURE() << "nobody sent anything";
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 0);
        EXPECT_EQ(error.reason().find("it sent nonsense"), 0U) << error.reason();
    }
}

TEST(MpiProcess, ManyCommunicatorsOneAfterTheOtherAndOnOneProgressThread) {
    auto const progress_thread = std::make_shared<ProgressThread>();
    for (int round = 0; round < 5; ++round) {
        std::vector<std::shared_ptr<Communicator>> comms;
        for (int i = 0; i < 3; ++i) {
            comms.push_back(make_comm("", progress_thread));
        }
        NEEDS_PEERS();
        for (std::size_t i = 0; i < comms.size(); ++i) {
            (void)comms[i]->send({static_cast<std::uint8_t>(i)}, next_of(*comms[i]), Tag{1, 0});
        }
        for (std::size_t i = comms.size(); i-- > 0;) {
            EXPECT_EQ(wait_any(*comms[i], Tag{1, 0}).bytes.at(0), i);
        }
    }
}

}  // namespace
}  // namespace rapidsmpf

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    auto const failed = RUN_ALL_TESTS();
    // One communicator that is still open when MPI ends.
    auto const open = rapidsmpf::make_mpi_communicator(MPI_Comm_c2f(MPI_COMM_WORLD));
    MPI_Finalize();
    return failed != 0 || !open->failure() ? 1 : 0;
}

// Point-to-point messages between real processes: each rank of a job started by rrun runs these tests.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <ucxx/api.h>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "bootstrap/coordinator.hpp"
#include "bootstrap/ranks.hpp"

namespace rapidsmpf {
namespace {

using bootstrap::create_ucxx_comm;
using test::exchange_sizes;
using test::has_pattern;
using test::Pattern;
using test::patterned;
using test::small_message;
using test::wait;
using test::wait_all;
using test::wait_any;
using test::wait_on_progress;

using Requests = std::vector<std::unique_ptr<Communicator::Request>>;

constexpr std::chrono::seconds patience{60};

TEST(UcxxProcess, RankIsTheLaunchersRank) {
    auto const comm = create_ucxx_comm();
    EXPECT_EQ(comm->rank(), bootstrap::get_rank());
    EXPECT_EQ(comm->nranks(), bootstrap::get_nranks());
    EXPECT_NE(comm->str().find("transports=["), std::string::npos) << comm->str();
}

TEST(UcxxProcess, EverySizeBetweenEveryPairBothWaysAtOnce) {
    EXPECT_EQ(exchange_sizes(*create_ucxx_comm(), {0, 1, 7, 4096, 8192, 65536, 1 << 20, (5 << 20) + 3}), "");
}

TEST(UcxxProcess, LargeMessageGoesRoundTheRing) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    constexpr std::size_t size = std::size_t{300} << 20;
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
    auto const receiving = comm->recv(in, 0, size, previous, Tag{1, 0});
    auto const sending = comm->send(patterned(br, size, me, next, 0), 0, size, next, Tag{1, 0});
    wait(*comm, *sending);
    wait(*comm, *receiving);
    EXPECT_TRUE(has_pattern(in->host_bytes(), previous, me, 0));
}

TEST(UcxxProcess, PartOfABufferIsSentIntoPartOfAnother) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 300);
    std::fill(in->mutable_host_bytes().begin(), in->mutable_host_bytes().end(), std::byte{0});
    auto const out = patterned(br, 1000, me, next, 5);
    auto const receiving = comm->recv(in, 100, 50, previous, Tag{1, 0});
    auto const sending = comm->send(out, 200, 50, next, Tag{1, 0});
    wait(*comm, *sending);
    wait(*comm, *receiving);
    Pattern const pattern{previous, me, 5};
    for (std::size_t i = 0; i < 300; ++i) {
        auto const expected =
            i >= 100 && i < 150 ? static_cast<std::byte>(pattern.at(i + 100)) : std::byte{0};
        ASSERT_EQ(in->host_bytes()[i], expected) << i;
    }
}

TEST(UcxxProcess, UnaskedMessagesComeInOrderPerSourceWhateverTheirSize) {
    auto const comm = create_ucxx_comm();
    auto const me = comm->rank();
    constexpr std::uint64_t count = 150;
    // Every seventh is too large for UCX to send at once, so that later small ones could overtake it.
    auto const size_of = [](std::uint64_t number) -> std::size_t {
        return number % 7 == 3 ? std::size_t{200'000} : static_cast<std::size_t>(number % 50);
    };
    Tag const tag{9, 2};
    Requests sends;
    for (std::uint64_t number = 0; number < count; ++number) {
        for (Rank peer = 0; peer < comm->nranks(); ++peer) {
            if (peer != me) {
                sends.push_back(comm->send(small_message(me, peer, number, size_of(number)), peer, tag));
            }
        }
    }
    std::map<Rank, std::uint64_t> next;
    auto const expected = count * static_cast<std::uint64_t>(comm->nranks() - 1);
    for (std::uint64_t i = 0; i < expected; ++i) {
        auto const arrived = wait_any(*comm, tag);
        auto const number = next[arrived.source]++;
        ASSERT_EQ(arrived.bytes, small_message(arrived.source, me, number, size_of(number)))
            << "message " << number << " of rank " << arrived.source;
    }
    wait_all(*comm, sends);
    EXPECT_FALSE(comm->recv_any(tag));
}

TEST(UcxxProcess, TagsDoNotMix) {
    auto const comm = create_ucxx_comm();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    std::vector<Tag> const tags{Tag{0, 0}, Tag{0, 7}, Tag{1, 0}, Tag{Tag::max_op_id, 7}};
    Requests sends;
    for (std::size_t i = 0; i < tags.size(); ++i) {
        sends.push_back(comm->send(small_message(me, next, i, 10), next, tags[i]));
    }
    for (std::size_t i = tags.size(); i-- > 0;) {
        auto const arrived = wait_any(*comm, tags[i]);
        EXPECT_EQ(arrived.source, previous);
        EXPECT_EQ(arrived.bytes, small_message(previous, me, i, 10));
    }
    wait_all(*comm, sends);
}

TEST(UcxxProcess, SendGoesOnWhenItsRequestIsDropped) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    constexpr std::size_t size = std::size_t{8} << 20;
    static_cast<void>(comm->send(patterned(br, size, me, next, 1), 0, size, next, Tag{1, 0}));
    comm->barrier();
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
    wait(*comm, *comm->recv(in, 0, size, previous, Tag{1, 0}));
    EXPECT_TRUE(has_pattern(in->host_bytes(), previous, me, 1));
}

TEST(UcxxProcess, DroppedReceiveTakesNoMessage) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    {
        std::shared_ptr<Buffer> unused = br->allocate(MemoryType::HOST, 100);
        static_cast<void>(comm->recv(std::move(unused), 0, 100, previous, Tag{1, 0}));
    }
    comm->barrier();
    auto const sending = comm->send(patterned(br, 100, me, next, 1), 0, 100, next, Tag{1, 0});
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 100);
    wait(*comm, *comm->recv(in, 0, 100, previous, Tag{1, 0}));
    EXPECT_TRUE(has_pattern(in->host_bytes(), previous, me, 1));
    wait(*comm, *sending);
}

TEST(UcxxProcess, MessageOfAnotherSizeIsAnError) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    auto const previous = (me + comm->nranks() - 1) % comm->nranks();
    Requests sends;
    sends.push_back(comm->send(patterned(br, 100, me, next, 1), 0, 100, next, Tag{1, 0}));
    sends.push_back(comm->send(patterned(br, 100, me, next, 1), 0, 100, next, Tag{2, 0}));
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 200);
    EXPECT_THROW(wait(*comm, *comm->recv(in, 0, 50, previous, Tag{1, 0})), std::runtime_error);
    EXPECT_THROW(wait(*comm, *comm->recv(in, 0, 200, previous, Tag{2, 0})), std::runtime_error);
    EXPECT_FALSE(comm->failure());
    wait_all(*comm, sends);
}

TEST(UcxxProcess, WrongPeersAndRangesAreRefused) {
    auto const comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    auto const me = comm->rank();
    auto const next = (me + 1) % comm->nranks();
    std::shared_ptr<Buffer> buffer = br->allocate(MemoryType::HOST, 100);
    EXPECT_THROW(
        static_cast<void>(comm->send(std::vector<std::uint8_t>{}, me, Tag{1, 0})), std::invalid_argument);
    EXPECT_THROW(
        static_cast<void>(comm->send(std::vector<std::uint8_t>{}, comm->nranks(), Tag{1, 0})),
        std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm->send(buffer, 90, 11, next, Tag{1, 0})), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(comm->recv(buffer, 101, 0, next, Tag{1, 0})), std::invalid_argument);
}

TEST(UcxxProcess, WhatIsSentArrivesThoughTheSenderLeavesAtOnce) {
    auto comm = create_ucxx_comm();
    auto const br = BufferResource::make();
    constexpr std::size_t size = std::size_t{32} << 20;
    if (comm->rank() != 0) {
        static_cast<void>(comm->send(patterned(br, size, comm->rank(), 0, 1), 0, size, 0, Tag{1, 0}));
        static_cast<void>(comm->send(small_message(comm->rank(), 0, 2, 1000), 0, Tag{2, 0}));
        comm.reset();
        return;
    }
    for (Rank peer = 1; peer < comm->nranks(); ++peer) {
        static_cast<void>(wait_any(*comm, Tag{2, 0}));
    }
    for (Rank peer = 1; peer < comm->nranks(); ++peer) {
        std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
        wait(*comm, *comm->recv(in, 0, size, peer, Tag{1, 0}));
        EXPECT_TRUE(has_pattern(in->host_bytes(), peer, 0, 1));
    }
    EXPECT_FALSE(comm->failure());
}

TEST(UcxxProcess, ARankThatHasLeftIsKnownAndNoFailure) {
    auto comm = create_ucxx_comm();
    if (comm->rank() != 0) {
        return;
    }
    for (Rank peer = 1; peer < comm->nranks(); ++peer) {
        wait_on_progress(*comm, [&] { return comm->has_closed(peer); });
    }
    EXPECT_EQ(comm->first_closed(), comm->nranks() > 1 ? std::optional<Rank>{1} : std::nullopt);
    EXPECT_FALSE(comm->failure());
}

TEST(UcxxProcess, ManyCommunicatorsOnOneProgressThread) {
    auto const progress_thread = std::make_shared<ProgressThread>();
    std::vector<std::shared_ptr<UcxxCommunicator>> comms;
    for (int i = 0; i < 4; ++i) {
        comms.push_back(create_ucxx_comm(config::Options{}, progress_thread));
    }
    // Not in the order of their making; each has its own messages.
    std::reverse(comms.begin(), comms.end());
    for (std::size_t i = 0; i < comms.size(); ++i) {
        auto& comm = *comms[i];
        auto const me = comm.rank();
        auto const next = (me + 1) % comm.nranks();
        auto const previous = (me + comm.nranks() - 1) % comm.nranks();
        auto const sending = comm.send(small_message(me, next, i, 100), next, Tag{1, 0});
        EXPECT_EQ(wait_any(comm, Tag{1, 0}).bytes, small_message(previous, me, i, 100));
        wait(comm, *sending);
    }
}

TEST(UcxxProcess, BarrierWaitsForAll) {
    auto const comm = create_ucxx_comm();
    Tag const tag{1, 0};
    for (int round = 0; round < 50; ++round) {
        // What was sent before a barrier is there after it, or at least on its way; what is sent after it is not
        // seen before.
        if (comm->rank() == 1) {
            static_cast<void>(
                comm->send(std::vector<std::uint8_t>{static_cast<std::uint8_t>(round)}, 0, tag));
        }
        if (comm->rank() == 0) {
            EXPECT_EQ(wait_any(*comm, tag).bytes.at(0), round);
            EXPECT_FALSE(comm->recv_any(tag)) << "rank 1 has passed a barrier that rank 0 has not reached";
        }
        comm->barrier(patience);
    }
}

TEST(UcxxProcess, BarrierTimesOutAndNamesTheMissing) {
    auto const comm = create_ucxx_comm();
    if (comm->rank() == 0) {
        try {
            comm->barrier(std::chrono::milliseconds{20});
            ADD_FAILURE() << "nobody else called it";
        } catch (TimeoutError const& error) {
            EXPECT_NE(std::string{error.what()}.find("not reached by rank(s) 1"), std::string::npos)
                << error.what();
        }
        for (Rank peer = 1; peer < comm->nranks(); ++peer) {
            static_cast<void>(comm->send(std::vector<std::uint8_t>{1}, peer, Tag{1, 0}));
        }
    } else {
        static_cast<void>(wait_any(*comm, Tag{1, 0}));
    }
}

// The way that Python's new_communicator takes: the root's address travels by other means.
std::shared_ptr<UcxxCommunicator> join_by_hand(bootstrap::Coordinator& coordinator) {
    if (coordinator.rank() == 0) {
        auto comm = bootstrap::join_ucxx_comm(coordinator.nranks(), nullptr, std::nullopt);
        coordinator.put("root", comm->worker_address());
        return comm;
    }
    auto const address = coordinator.get("root", patience);
    return bootstrap::join_ucxx_comm(coordinator.nranks(), nullptr, address);
}

TEST(UcxxProcess, RanksJoinARootByItsAddress) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    auto const comm = join_by_hand(coordinator);
    comm->barrier(patience);
    auto const ranks = coordinator.gather({static_cast<std::uint8_t>(comm->rank())}, patience);
    std::vector<std::uint8_t> seen;
    for (auto const& rank : ranks) {
        seen.push_back(rank.at(0));
    }
    EXPECT_EQ(seen[0], 0);
    std::sort(seen.begin(), seen.end());
    std::vector<std::uint8_t> all(static_cast<std::size_t>(comm->nranks()));
    std::iota(all.begin(), all.end(), std::uint8_t{0});
    EXPECT_EQ(seen, all);

    auto const next = (comm->rank() + 1) % comm->nranks();
    auto const previous = (comm->rank() + comm->nranks() - 1) % comm->nranks();
    auto const sending = comm->send(small_message(comm->rank(), next, 1, 5000), next, Tag{1, 0});
    auto const arrived = wait_any(*comm, Tag{1, 0});
    EXPECT_EQ(arrived.source, previous);
    EXPECT_EQ(arrived.bytes, small_message(previous, comm->rank(), 1, 5000));
    wait(*comm, *sending);
    coordinator.barrier(patience);
}

TEST(UcxxProcess, RootRefusesAnotherNumberOfRanks) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    if (coordinator.rank() == 0) {
        auto const comm =
            UcxxCommunicator::join(coordinator.nranks(), nullptr, std::nullopt, config::Options{}, nullptr);
        coordinator.put("root", comm->worker_address());
        coordinator.barrier(patience);
    } else {
        auto const address = coordinator.get("root", patience);
        EXPECT_THROW(
            static_cast<void>(UcxxCommunicator::join(
                coordinator.nranks() + 1, nullptr, address, config::Options{}, nullptr)),
            std::invalid_argument);
        coordinator.barrier(patience);
    }
}

TEST(UcxxProcess, DamagedAddressesAreRefused) {
    auto const root =
        UcxxCommunicator::join(2, nullptr, std::nullopt, config::Options{}, nullptr)->worker_address();
    EXPECT_TRUE(is_sealed_ucxx_address(root));
    auto const refused = [&](UcxxCommunicator::Address const& address) {
        EXPECT_THROW(
            static_cast<void>(UcxxCommunicator::join(2, nullptr, address, config::Options{}, nullptr)),
            std::invalid_argument);
    };
    refused({});
    refused(UcxxCommunicator::Address(200, 0));
    auto changed = root;
    changed[root.size() / 2] ^= 1U;
    refused(changed);
    refused({root.begin() + 1, root.end()});
}

TEST(UcxxProcess, UnknownProgressModesAreRefused) {
    for (auto const* const mode : {"blocking", "polling", "often"}) {
        config::Options const options{config::Strings{{"ucxx_progress_mode", mode}}};
        EXPECT_THROW(
            static_cast<void>(UcxxCommunicator::join(1, nullptr, std::nullopt, options, nullptr)),
            std::invalid_argument);
    }
    for (auto const* const mode : {"thread-blocking", "Thread-Polling", ""}) {
        config::Options const options{config::Strings{{"ucxx_progress_mode", mode}}};
        EXPECT_EQ(UcxxCommunicator::join(1, nullptr, std::nullopt, options, nullptr)->rank(), 0);
    }
}

// Who leaves in good order, the root too, is no failure to those that stay.
TEST(UcxxProcess, RanksThatJoinedByHandNoticeWhoLeaves) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    auto comm = join_by_hand(coordinator);
    comm->barrier(patience);
    coordinator.barrier(patience);
    Rank const last = comm->nranks() - 1;
    if (comm->rank() == 0) {
        comm.reset();
    } else {
        wait_on_progress(*comm, [&] { return comm->has_closed(0); });
        EXPECT_FALSE(comm->failure());
    }
    coordinator.barrier(patience);
    if (comm && comm->rank() == last) {
        EXPECT_FALSE(comm->failure());
    }
}

TEST(UcxxProcess, AbortReachesRanksThatJoinedByHand) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    auto const comm = join_by_hand(coordinator);
    comm->barrier(patience);
    coordinator.barrier(patience);  // the abort of another rank must not end the barrier of this one
    auto const br = BufferResource::make();
    if (comm->rank() == 1) {
        comm->abort("ValueError: enough");
        EXPECT_THROW(comm->check(), RankFailedError);
    } else {
        std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 10);
        auto const receiving = comm->recv(in, 0, 10, comm->rank() == 0 ? 1 : 0, Tag{1, 0});
        try {
            wait(*comm, *receiving);
            ADD_FAILURE() << "nobody sent anything";
        } catch (RankFailedError const& error) {
            EXPECT_EQ(error.rank(), 1);
            EXPECT_EQ(error.reason(), "ValueError: enough");
            EXPECT_GT(error.pid(), 0);
        }
    }
    coordinator.barrier(patience);
}

// As the capture of a function that is done: the end, which needs that thread, is another's business.
TEST(UcxxProcess, LastReferenceMayGoOnTheProgressThread) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    std::shared_ptr<UcxxCommunicator> comm = bootstrap::create_ucxx_comm();
    if (comm->rank() == 0) {
        // Not delivered yet, most likely.
        auto const br = BufferResource::make();
        constexpr std::size_t size = 8 << 20;
        for (Rank peer = 1; peer < comm->nranks(); ++peer) {
            (void)comm->send(patterned(br, size, 0, peer, 7), 0, size, peer, Tag{1, 0});
        }
        auto const progress_thread = comm->progress_thread();
        progress_thread->add_function(
            [last = std::move(comm)] { return ProgressThread::TickResult::done(); });
    } else {
        wait_on_progress(*comm, [&] { return comm->has_closed(0); });
        auto const br = BufferResource::make();
        constexpr std::size_t size = 8 << 20;
        std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, size);
        wait(*comm, *comm->recv(in, 0, size, 0, Tag{1, 0}));
        EXPECT_TRUE(has_pattern(in->host_bytes(), 0, comm->rank(), 7));
        EXPECT_FALSE(comm->failure());
    }
    coordinator.barrier(patience);
}

// The last rank finds rank 0 at fault: all are told, by the liveness channel or, where there is none, by messages.
void report_rank_zero(UcxxCommunicator& comm) {
    auto const br = BufferResource::make();
    if (comm.rank() == comm.nranks() - 1) {
        comm.report_protocol_violation(0, "it sent nonsense");
    }
    std::shared_ptr<Buffer> in = br->allocate(MemoryType::HOST, 10);
    auto const receiving = comm.recv(in, 0, 10, (comm.rank() + 1) % comm.nranks(), Tag{1, 0});
    try {
        wait(comm, *receiving);
        ADD_FAILURE() << "nobody sent anything";
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 0);
        EXPECT_EQ(error.reason().find("it sent nonsense"), 0U) << error.reason();
    }
}

TEST(UcxxProcess, ConvictionReachesAllRanks) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    auto const comm = join_by_hand(coordinator);
    comm->barrier(patience);
    coordinator.barrier(patience);
    report_rank_zero(*comm);
    coordinator.barrier(patience);
}

TEST(UcxxProcess, ConvictionReachesAllRanksWithoutLiveness) {
    bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
    auto const worker = make_ucxx_worker();
    auto const addresses = coordinator.gather(ucxx_worker_address(*worker), patience);
    auto const comm = UcxxCommunicator::connect(
        coordinator.rank(), addresses, bootstrap::Membership::from_environment().token, worker, nullptr,
        config::Options{}, nullptr);
    comm->barrier(patience);
    coordinator.barrier(patience);
    report_rank_zero(*comm);
    coordinator.barrier(patience);
}

TEST(UcxxProcess, WorkerFromOutsideLivesOn) {
    auto const worker = make_ucxx_worker();
    for (int round = 0; round < 2; ++round) {
        bootstrap::Coordinator coordinator{bootstrap::Membership::from_environment(), patience};
        auto const addresses = coordinator.gather(ucxx_worker_address(*worker), patience);
        auto comm = UcxxCommunicator::connect(
            coordinator.rank(), addresses, bootstrap::Membership::from_environment().token, worker, nullptr,
            config::Options{}, nullptr);
        EXPECT_EQ(comm->worker(), worker);
        comm->barrier(patience);
        // No rank may still be sending into the worker when the next communicator begins to use it.
        coordinator.barrier(patience);
        comm.reset();
        coordinator.barrier(patience);
    }
}

}  // namespace
}  // namespace rapidsmpf

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

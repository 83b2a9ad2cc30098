#include <rapidsmpf/communicator/loopback.hpp>

#include <cstring>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf {
namespace {

Communicator::Arrived next(Communicator& comm, Tag tag) {
    for (;;) {
        if (auto arrived = comm.recv_any(tag)) {
            return std::move(*arrived);
        }
        std::this_thread::yield();
    }
}

void finish(Communicator::Request& request) {
    while (!request.test()) {
        std::this_thread::yield();
    }
}

LoopbackFaults delays(std::uint64_t seed) {
    LoopbackFaults faults;
    faults.seed = seed;
    faults.delay_probability = 0.7;
    faults.longest_delay = 50;
    return faults;
}

std::shared_ptr<Buffer> buffer_of(BufferResource& br, std::string const& text) {
    std::shared_ptr<Buffer> buffer = br.allocate(MemoryType::HOST, text.size());
    std::memcpy(buffer->mutable_host_bytes().data(), text.data(), text.size());
    return buffer;
}

std::string text_of(Buffer const& buffer) {
    auto const bytes = buffer.host_bytes();
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

TEST(Loopback, SmallMessagesArriveInOrderPerSource) {
    LoopbackCluster const cluster{3, delays(1)};
    for (std::uint8_t i = 0; i < 100; ++i) {
        (void)cluster[0]->send({i}, 2, Tag{1, 0});
        (void)cluster[1]->send({i}, 2, Tag{1, 0});
    }
    std::array<std::uint8_t, 2> expected{0, 0};
    for (int i = 0; i < 200; ++i) {
        auto const arrived = next(*cluster[2], Tag{1, 0});
        EXPECT_EQ(arrived.bytes.at(0), expected.at(static_cast<std::size_t>(arrived.source))++);
    }
    EXPECT_FALSE(cluster[2]->recv_any(Tag{1, 0}).has_value());
}

// Without this the schedules would test nothing.
TEST(Loopback, DelaysReorderAcrossStreams) {
    LoopbackCluster const cluster{3, delays(1)};
    // The receiver counts delays: while it is held everything gets under way, whichever thread runs when.
    std::latch held{1};
    std::latch sent{1};
    cluster[2]->progress_thread()->add_function([&] {
        held.count_down();
        sent.wait();
        return ProgressThread::TickResult::done();
    });
    held.wait();
    for (Rank const source : {0, 1}) {
        for (std::uint8_t i = 0; i < 100; ++i) {
            (void)cluster[source]->send({i}, 2, Tag{1, 0});
        }
    }
    sent.count_down();
    bool overtaken = false;
    int from_first = 0;
    for (int i = 0; i < 200; ++i) {
        auto const arrived = next(*cluster[2], Tag{1, 0});
        from_first += arrived.source == 0 ? 1 : 0;
        overtaken = overtaken || (arrived.source == 1 && from_first < 100);
    }
    EXPECT_TRUE(overtaken);
}

TEST(Loopback, TagsAreApart) {
    LoopbackCluster const cluster{2};
    (void)cluster[0]->send({1}, 1, Tag{1, 0});
    (void)cluster[0]->send({2}, 1, Tag{1, 1});
    EXPECT_EQ(next(*cluster[1], Tag{1, 1}).bytes.at(0), 2);
    EXPECT_EQ(next(*cluster[1], Tag{1, 0}).bytes.at(0), 1);
}

TEST(Loopback, BuffersAreReceivedInPlace) {
    auto const br = BufferResource::make();
    LoopbackCluster const cluster{2, delays(2)};
    auto const from = buffer_of(*br, "hello world");
    auto const to = buffer_of(*br, "...........");
    auto const receive = cluster[1]->recv(to, 2, 5, 0, Tag{1, 1});
    auto const send = cluster[0]->send(from, 6, 5, 1, Tag{1, 1});
    finish(*receive);
    finish(*send);
    EXPECT_EQ(text_of(*to), "..world....");
}

TEST(Loopback, AWrongSizeIsAnError) {
    auto const br = BufferResource::make();
    LoopbackCluster const cluster{2};
    auto const receive = cluster[1]->recv(buffer_of(*br, "123"), 0, 3, 0, Tag{1, 1});
    (void)cluster[0]->send(buffer_of(*br, "1234"), 0, 4, 1, Tag{1, 1});
    EXPECT_THROW(finish(*receive), std::runtime_error);
}

TEST(Loopback, ADroppedReceiveIsCancelled) {
    auto const br = BufferResource::make();
    LoopbackCluster const cluster{2};
    auto const first = buffer_of(*br, "...");
    auto const second = buffer_of(*br, "...");
    cluster[1]->recv(first, 0, 3, 0, Tag{1, 1}).reset();
    auto const receive = cluster[1]->recv(second, 0, 3, 0, Tag{1, 1});
    (void)cluster[0]->send(buffer_of(*br, "abc"), 0, 3, 1, Tag{1, 1});
    finish(*receive);
    EXPECT_EQ(text_of(*first), "...");
    EXPECT_EQ(text_of(*second), "abc");
}

TEST(Loopback, ADroppedSendArrives) {
    auto const br = BufferResource::make();
    LoopbackCluster const cluster{2};
    auto const to = buffer_of(*br, "...");
    cluster[0]->send(buffer_of(*br, "abc"), 0, 3, 1, Tag{1, 1}).reset();
    auto const receive = cluster[1]->recv(to, 0, 3, 0, Tag{1, 1});
    finish(*receive);
    EXPECT_EQ(text_of(*to), "abc");
}

TEST(Loopback, ThereIsNoSendingToOneself) {
    LoopbackCluster const cluster{2};
    EXPECT_THROW((void)cluster[0]->send({1}, 0, Tag{1, 0}), std::invalid_argument);
    EXPECT_THROW((void)cluster[0]->send({1}, 2, Tag{1, 0}), std::invalid_argument);
}

TEST(Loopback, TheDeadAreReportedToAll) {
    auto faults = delays(3);
    faults.dying_rank = 1;
    faults.dies_after = 2;
    LoopbackCluster const cluster{3, faults};
    for (std::uint8_t i = 0; i < 5; ++i) {
        (void)cluster[1]->send({i}, 0, Tag{1, 0});
    }
    for (Rank rank = 0; rank < 3; ++rank) {
        while (!cluster[rank]->failure()) {
            std::this_thread::yield();
        }
        EXPECT_EQ(cluster[rank]->failure()->rank, 1);
    }
    EXPECT_EQ(cluster.messages_sent_for_testing(1), 2U);
}

// As the capture of a function that is done: the end, which needs that thread, is another's business.
TEST(Loopback, LastReferenceMayGoOnItsOwnProgressThread) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        auto comms = LoopbackCluster{2, delays(seed)}.communicators();
        auto& leaver = comms.front();
        // Not the last one: it has to be there until add_function() has returned.
        auto const progress_thread = leaver->progress_thread();
        EXPECT_FALSE(progress_thread->is_current());
        progress_thread->add_function([last = std::move(leaver)] {
            EXPECT_TRUE(last->progress_thread()->is_current());
            return ProgressThread::TickResult::done();
        });
        comms.erase(comms.begin());
        while (!comms.front()->has_closed(0)) {
            std::this_thread::yield();
        }
    }
}

}  // namespace
}  // namespace rapidsmpf

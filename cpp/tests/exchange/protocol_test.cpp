// One side of the protocol played by hand: what a rank says, what it holds back, and what it does with
// messages that it should never get.
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::chrono::milliseconds patience{60'000};
constexpr std::chrono::hours for_ever{24};
// Payloads as messages: peer_memory_test.cpp plays the other kind.
config::Options const by_messages{config::Strings{{"peer_memory", "off"}}};
Tag const control{OperationDispatcher::control_op, 0};
Tag const payload{7, 1};

Operation::Plan plan_of(OpId op) {
    Operation::Plan plan;
    plan.kind = "shuffle";
    plan.op = op;
    plan.total = 2;
    plan.owner = [](PartitionId partition) { return static_cast<Rank>(partition); };
    return plan;
}

// Rank 0 is an operation, rank 1 is this test.
class Protocol : public testing::Test {
  protected:
    ~Protocol() override {
        if (operation) {
            operation->release();
        }
    }

    void open(
        Settings const& settings = Settings(), Operation::Coalescing coalescing = Operation::Coalescing::no) {
        auto plan = plan_of(7);
        plan.settings = settings;
        plan.coalescing = coalescing;
        operation = Operation::open(*cluster[0], br, std::move(plan));
    }

    // Small ones in memory that the host reads, which may travel in messages.
    [[nodiscard]] PackedData chunk(std::size_t size) const {
        bool const on_device = size > Settings().gather_limit || br->device().kind() == DeviceKind::cpu;
        return PackedData{{1, 2, 3}, br->allocate(on_device ? MemoryType::DEVICE : MemoryType::HOST, size)};
    }
    void insert(PartitionId partition, std::size_t size) {
        std::vector<std::pair<PartitionId, PackedData>> chunks;
        chunks.emplace_back(partition, chunk(size));
        operation->insert(std::move(chunks));
    }

    // The next message for rank 1; its bytes live until the next call.
    OperationMessage hear() {
        for (;;) {
            if (auto arrived = cluster[1]->recv_any(control)) {
                heard_ = std::move(arrived->bytes);
                return read_operation_message(heard_);
            }
            std::this_thread::yield();
        }
    }
    void say(MessageWriter writer) { say(std::move(writer).take()); }
    void say(Bytes bytes) { (void)cluster[1]->send(std::move(bytes), 0, control); }

    std::string failure() {
        for (;;) {
            if (auto const failed = cluster[0]->failure()) {
                return "rank " + std::to_string(failed->rank) + ": " + failed->reason;
            }
            std::this_thread::yield();
        }
    }

    std::shared_ptr<BufferResource> br = BufferResource::make();
    LoopbackCluster cluster{2, LoopbackFaults(), by_messages};
    std::shared_ptr<Operation> operation;

  private:
    Bytes heard_;
};

TEST_F(Protocol, SmallChunksTravelInTheMessage) {
    open();
    insert(1, 100);
    auto const message = hear();
    ASSERT_EQ(message.eager.size(), 1U);
    EXPECT_EQ(message.eager[0].pieces[0].data_size, 100U);
    EXPECT_TRUE(message.frames.empty());
}

TEST_F(Protocol, WithoutCreditChunksAreAnnounced) {
    Settings settings;
    settings.eager_bytes = 150;
    open(settings);
    insert(1, 100);
    EXPECT_EQ(hear().eager.size(), 1U);
    insert(1, 100);
    EXPECT_EQ(hear().frames.size(), 1U);
    MessageWriter credit{7};
    credit.credit(131);  // 28 bytes of listing, 3 of metadata, 100 of data
    say(std::move(credit));
    // The credit is used once it is there; what was inserted before may have been announced.
    insert(1, 100);
    auto message = hear();
    while (message.eager.empty()) {
        insert(1, 100);
        message = hear();
    }
    EXPECT_EQ(message.eager[0].pieces[0].data_size, 100U);
}

// Where chunks may wait for more, the first goes at once and the next when there is enough of them.
TEST_F(Protocol, ManyInsertsAreOneMessage) {
    Settings settings;
    settings.flush_bytes = 1'000;
    settings.flush_delay = for_ever;
    open(settings, Operation::Coalescing::yes);
    insert(1, 100);
    EXPECT_EQ(hear().eager.at(0).pieces.size(), 1U);
    for (int i = 0; i < 3; ++i) {
        insert(1, 100);
    }
    insert(1, 700);
    EXPECT_EQ(hear().eager.at(0).pieces.size(), 4U);
}

TEST_F(Protocol, WhatIsHeldCanBeSpilledAndGoesWithTheCounts) {
    Settings settings;
    settings.flush_delay = for_ever;
    open(settings, Operation::Coalescing::yes);
    insert(1, 100);
    EXPECT_EQ(hear().eager.size(), 1U);
    insert(1, 100'000);
    insert(1, 100);
    EXPECT_EQ(operation->spill(1), 100'000U);
    operation->insert_finished();
    auto const message = hear();
    ASSERT_EQ(message.counts.size(), 1U);
    EXPECT_EQ(message.counts[0].chunks, 3U);
    EXPECT_EQ(message.frames.at(0).pieces.size(), 2U);
}

TEST_F(Protocol, WhatIsHeldGoesAfterSomeTime) {
    Settings settings;
    settings.flush_delay = std::chrono::microseconds{1};
    open(settings, Operation::Coalescing::yes);
    for (int i = 0; i < 100; ++i) {
        insert(1, 100);
        EXPECT_EQ(hear().eager.at(0).pieces.size(), 1U);
    }
}

TEST_F(Protocol, NothingIsHeldWhileMemoryIsShort) {
    BufferResource::Settings limits;
    limits.limits[0] = 10'000;
    limits.available[0] = [] { return BufferResource::unlimited; };
    br = BufferResource::make(std::move(limits));
    Settings settings;
    settings.flush_delay = for_ever;
    open(settings, Operation::Coalescing::yes);
    for (int i = 0; i < 3; ++i) {
        insert(1, 100);
        EXPECT_EQ(hear().eager.at(0).pieces.size(), 1U);
    }
}

TEST_F(Protocol, LargeChunksWaitForTheirGrant) {
    open();
    insert(1, 100'000);
    auto const message = hear();
    ASSERT_EQ(message.frames.size(), 1U);
    EXPECT_EQ(message.frames[0].pieces[0].data_size, 100'000U);
    // Not granted: it can be spilled.
    EXPECT_EQ(operation->spill(1), 100'000U);
    EXPECT_EQ(br->memory_used(br->spill_targets(MemoryType::DEVICE).front()), 100'000);

    std::shared_ptr<Buffer> const receive_transfer = br->allocate(MemoryType::HOST, 100'000);
    auto const receive = cluster[1]->recv(receive_transfer, 0, 100'000, 0, payload);
    EXPECT_FALSE(receive->test());
    MessageWriter grant{7};
    grant.grants(1);
    say(std::move(grant));
    while (!receive->test()) {
        std::this_thread::yield();
    }
}

// A chunk for all ranks: the transport reads it for one of them, while another has not asked for it yet.
TEST(SharedChunk, WhatIsBeingSentIsNotSpilled) {
    LoopbackCluster cluster{3, LoopbackFaults(), by_messages};
    auto const br = BufferResource::make();
    auto plan = plan_of(7);
    plan.total = 3;
    auto const operation = Operation::open(*cluster[0], br, std::move(plan));
    operation->insert_for_all(0, PackedData{{1}, br->allocate(MemoryType::DEVICE, 100'000)});
    MessageWriter grant{7};
    grant.grants(1);
    while (cluster.messages_sent_for_testing(0) < 2) {  // announced to both
        std::this_thread::yield();
    }
    (void)cluster[1]->send(std::move(grant).take(), 0, control);
    while (cluster.messages_sent_for_testing(0) < 3) {  // with the transport
        std::this_thread::yield();
    }
    EXPECT_EQ(operation->spill(1), 0U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 100'000);

    std::shared_ptr<Buffer> const receive_transfer = br->allocate(MemoryType::HOST, 100'000);
    auto const receive = cluster[1]->recv(receive_transfer, 0, 100'000, 0, payload);
    while (operation->spill(1) == 0) {  // sent: now it may be
        std::this_thread::yield();
    }
    EXPECT_TRUE(receive->test());
    operation->release();
}

TEST_F(Protocol, AnnouncementsStopWhenTheWindowIsFull) {
    Settings settings;
    settings.eager_bytes = 0;
    settings.frame_bytes = 1000;
    settings.announce_bytes = 2000;
    open(settings);
    std::vector<std::pair<PartitionId, PackedData>> chunks;
    for (int i = 0; i < 10; ++i) {
        chunks.emplace_back(1, chunk(900));
    }
    operation->insert(std::move(chunks));
    EXPECT_EQ(hear().frames.size(), 2U);
    MessageWriter grant{7};
    grant.grants(1);
    say(std::move(grant));
    EXPECT_EQ(hear().frames.size(), 1U);
}

TEST_F(Protocol, GrantsAreBoundedByTheReceiveLimit) {
    Settings settings;
    settings.receive_limit = 1000;
    open(settings);
    MessageWriter announce{7};
    for (int i = 0; i < 3; ++i) {
        announce.frame(std::vector{PieceHeader{{0, static_cast<std::uint64_t>(i)}, 1, 400}}, 64, 1 << 20);
        announce.append(Bytes{9});
    }
    say(std::move(announce));
    EXPECT_EQ(hear().granted(), 2U);
    EXPECT_EQ(OperationDispatcher::of(*cluster[0])->budget().in_flight(), 800U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 800);
    // The third is granted when the first has come, though the caller has not extracted it.
    std::shared_ptr<Buffer> const data = br->allocate(MemoryType::HOST, 400);
    (void)cluster[1]->send(data, 0, 400, 0, payload);
    EXPECT_EQ(hear().granted(), 1U);
    EXPECT_EQ(operation->extract(0).size(), 1U);
}

TEST_F(Protocol, AFrameOverTheLimitIsGrantedAlone) {
    Settings settings;
    settings.receive_limit = 10;
    open(settings);
    MessageWriter announce{7};
    announce.frame(std::vector{PieceHeader{{0, 0}, 1, 400}}, 64, 1 << 20);
    announce.append(Bytes{9});
    say(std::move(announce));
    EXPECT_EQ(hear().granted(), 1U);
}

TEST_F(Protocol, CreditComesBackForWhatWasTakenIn) {
    Settings settings;
    settings.eager_bytes = 200;
    open(settings);
    MessageWriter eager{7};
    eager.eager(std::vector{PieceHeader{{0, 0}, 1, 100}});
    eager.append(Bytes(101, 5));
    say(std::move(eager));
    EXPECT_EQ(hear().credit, 129U);
}

TEST_F(Protocol, AFrameIsGrantedWhenSpillingHasMadeRoomForIt) {
    if (br->device().kind() != DeviceKind::cpu) {
        GTEST_SKIP() << "this is about a CPU: elsewhere the host takes what the device has no room for";
    }
    BufferResource::Settings limits;
    limits.limits[0] = 1000;
    limits.available[0] = [] { return BufferResource::unlimited; };
    br = BufferResource::make(std::move(limits));
    SpillableBuffer const held{br->allocate(MemoryType::DEVICE, 900)};
    open();
    MessageWriter announce{7};
    announce.frame(std::vector{PieceHeader{{0, 0}, 1, 400}}, 64, 1 << 20);
    announce.append(Bytes{9});
    say(std::move(announce));
    EXPECT_EQ(hear().granted(), 1U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 400);
    EXPECT_EQ(held.mem_type(), br->spill_targets(MemoryType::DEVICE).front());
}

TEST_F(Protocol, AFrameForWhichThereNeverIsMemoryIsGrantedAllTheSame) {
    BufferResource::Settings limits;
    limits.limits[0] = 100;
    limits.limits[2] = 100;
    limits.available[0] = [] { return BufferResource::unlimited; };
    limits.reserve_timeout = std::chrono::milliseconds{1};
    br = BufferResource::make(std::move(limits));
    open();
    MessageWriter announce{7};
    announce.frame(std::vector{PieceHeader{{0, 0}, 1, 400}}, 64, 1 << 20);
    announce.append(Bytes{9});
    say(std::move(announce));
    EXPECT_EQ(hear().granted(), 1U);
}

// As when the constructor of a collective throws behind open().
TEST_F(Protocol, TheEndOfTheHandleReleasesTheOperation) {
    open();
    EXPECT_THROW(open(), std::invalid_argument);  // the id is in use
    operation.reset();
    open();
    EXPECT_EQ(hear().final->kind, FinalKind::abandoned);
}

// As one that was just told, on another thread, that a chunk of it has been spilled.
TEST(OutlivedDispatcher, AnOperationThatIsHeldLongerThanTheCommunicatorHasNothingOfItLeft) {
    auto comms = LoopbackCluster{2}.communicators();
    auto plan = plan_of(7);
    plan.settings.receive_limit = 10;  // the first frame is granted alone, the second waits
    auto held = Operation::open(*comms[0], BufferResource::make(), std::move(plan));
    MessageWriter announce{7};
    for (std::uint64_t i = 0; i < 2; ++i) {
        announce.frame(std::vector{PieceHeader{{0, i}, 1, 400}}, 64, 1 << 20);
        announce.append(Bytes{9});
    }
    (void)comms[1]->send(std::move(announce).take(), 0, control);
    auto& budget = OperationDispatcher::of(*comms[0])->budget();
    while (budget.in_flight() == 0) {
        std::this_thread::yield();
    }
    EXPECT_EQ(budget.waiting(), 1U);
    held->insert_finished();
    held->release();
    comms.clear();
    held.reset();  // AddressSanitizer looks at what this touches
}

TEST_F(Protocol, MessagesBeforeTheBeginningAreKept) {
    MessageWriter eager{7};
    eager.eager(std::vector{PieceHeader{{0, 0}, 1, 1}});
    eager.append(Bytes{1, 2});
    eager.counts(std::vector{PartitionCount{0, 1}});
    say(std::move(eager));
    open();
    operation->insert_finished();
    operation->wait_on(0, patience);
    EXPECT_EQ(operation->extract(0).size(), 1U);
}

TEST_F(Protocol, WhatFollowsALastMessageBelongsToTheNextOperation) {
    open();
    operation->insert_finished();
    MessageWriter first{7};
    first.counts(std::vector{PartitionCount{0, 0}});
    say(std::move(first));
    for (std::uint64_t chunks : {0U, 1U, 0U}) {
        // A last message comes when its receiver has finished, too; all of the next operation's others may come before
        // this one is gone here.
        MessageWriter last{7};
        last.final(Final());
        say(std::move(last));
        MessageWriter early{7};
        if (chunks == 0) {
            early.eager(std::vector{PieceHeader{{0, 0}, 1, 1}});
            early.append(Bytes{1, 2});
        }
        early.counts(std::vector{PartitionCount{0, 1 - chunks}});
        say(std::move(early));
        operation->wait_on(0, patience);
        EXPECT_EQ(operation->extract(0).size(), chunks);
        operation->release();
        operation.reset();
        open();
        operation->insert_finished();
    }
}

TEST_F(Protocol, AFarewellEndsWhatTheRankWasNeededFor) {
    open();
    operation->insert_finished();
    say(MessageWriter{OperationDispatcher::control_op});
    try {
        operation->wait_on(0, patience);
        FAIL() << "nothing was thrown";
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.reason().find("it left before shuffle 7 was complete"), 0U);
    }
    EXPECT_FALSE(cluster[0]->failure());  // of this operation only
}

TEST_F(Protocol, WhatCameBeforeAFarewellCounts) {
    open();
    MessageWriter announce{7};
    announce.frame(std::vector{PieceHeader{{0, 0}, 1, 400}}, 64, 1 << 20);
    announce.append(Bytes{9});
    announce.counts(std::vector{PartitionCount{0, 1}});
    say(std::move(announce));
    EXPECT_EQ(hear().granted(), 1U);
    say(MessageWriter{OperationDispatcher::control_op});
    // Its chunk was on its way.
    std::shared_ptr<Buffer> const data = br->allocate(MemoryType::HOST, 400);
    (void)cluster[1]->send(data, 0, 400, 0, payload);
    // What is for the rank that left is dropped.
    insert(1, 100'000);
    operation->insert_finished();
    operation->wait_on(0, patience);
    EXPECT_EQ(operation->extract(0).size(), 1U);
    operation->shutdown(patience);
}

TEST_F(Protocol, AFarewellCountsForOperationsThatBeginLater) {
    MessageWriter early{7};
    early.counts(std::vector{PartitionCount{0, 0}});
    say(std::move(early));
    say(MessageWriter{OperationDispatcher::control_op});
    open();
    operation->insert_finished();
    operation->wait_on(0, patience);  // it has said all that this rank needs
    operation->release();
    operation.reset();
    open();
    EXPECT_THROW(operation->wait_on(0, patience), RankFailedError);
}

TEST_F(Protocol, AnAbandonedRangeEndsWhatIsOpenAndRefusesTheRest) {
    open();
    MessageWriter writer{OperationDispatcher::control_op};
    writer.abandon(AbandonedRange{5, 9, 1, "as planned"});
    say(std::move(writer));
    try {
        operation->wait_on(0, patience);
        FAIL() << "nothing was thrown";
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_EQ(error.reason(), "as planned");
    }
    auto const last = hear();
    ASSERT_TRUE(last.final);
    EXPECT_EQ(last.final->kind, FinalKind::failed);
    EXPECT_EQ(last.final->reason, "as planned");
    // Operation 8 was begun elsewhere and never here: it gets a last message all the same.
    MessageWriter begun{8};
    begun.counts(std::vector{PartitionCount{0, 0}});
    say(std::move(begun));
    auto const refusal = hear();
    ASSERT_TRUE(refusal.final);
    EXPECT_EQ(refusal.final->kind, FinalKind::failed);
    EXPECT_FALSE(cluster[0]->failure());
}

// Each of these must end as the failure of rank 1, whatever the sanitizers watch.
class Malformed : public Protocol {
  protected:
    void refuse(MessageWriter writer, std::string const& why) {
        open();
        say(std::move(writer));
        EXPECT_EQ(failure(), "rank 1: it sent a malformed message for shuffle 7: " + why);
        EXPECT_THROW(operation->insert_finished(), RankFailedError);
    }
};

TEST_F(Malformed, Garbage) {
    open();
    say(Bytes{1, 2, 3});
    EXPECT_EQ(failure(), "rank 1: it sent a malformed message: the message ends too early");
    EXPECT_THROW(operation->insert_finished(), RankFailedError);
}

TEST_F(Malformed, AFarewellAndMore) {
    open();
    MessageWriter writer{OperationDispatcher::control_op};
    writer.grants(1);
    say(std::move(writer));
    EXPECT_EQ(failure(), "rank 1: it sent a malformed message: an unknown section");
}

TEST_F(Malformed, ARangeBlamedOnNobody) {
    open();
    MessageWriter writer{OperationDispatcher::control_op};
    writer.abandon(AbandonedRange{5, 9, 2, "x"});
    say(std::move(writer));
    EXPECT_EQ(failure(), "rank 1: it sent a malformed message: a rank that does not exist");
}

TEST_F(Malformed, GrantsOfNothing) {
    MessageWriter writer{7};
    writer.grants(1);
    refuse(std::move(writer), "it granted more frames than were announced");
}

TEST_F(Malformed, CreditOfNothing) {
    MessageWriter writer{7};
    writer.credit(1);
    refuse(std::move(writer), "it gave back more credit than it had");
}

TEST_F(Malformed, CountsForAnotherRank) {
    MessageWriter writer{7};
    writer.counts(std::vector{PartitionCount{1, 0}});
    refuse(std::move(writer), "partition 1 is not one of this rank's");
}

TEST_F(Malformed, PiecesForAnotherRank) {
    MessageWriter writer{7};
    writer.frame(std::vector{PieceHeader{{1, 0}, 1, 400}}, 64, 100);
    writer.append(Bytes{9});
    refuse(std::move(writer), "partition 1 is not one of this rank's");
}

TEST_F(Malformed, MoreChunksThanAnnounced) {
    MessageWriter writer{7};
    writer.counts(std::vector{PartitionCount{0, 0}});
    writer.eager(std::vector{PieceHeader{{0, 0}, 1, 0}});
    writer.append(Bytes{9});
    refuse(std::move(writer), "more chunks for partition 0 than were announced");
}

TEST_F(Malformed, AFrameInTooManyMessages) {
    MessageWriter writer{7};
    writer.frame(std::vector{PieceHeader{{0, 0}, 1, 10'000'000}}, 64, 1);
    writer.append(Bytes{9});
    refuse(std::move(writer), "a frame of 10000000 bytes in messages of 1 bytes");
}

TEST_F(Malformed, ALastMessageTooEarly) {
    MessageWriter writer{7};
    writer.final(Final());
    refuse(std::move(writer), "its last message came before everything was finished");
}

TEST_F(Malformed, AnyBytesAtAll) {
    std::mt19937_64 random{11};
    MessageWriter writer{7};
    writer.counts(std::vector{PartitionCount{0, 5}});
    writer.eager(std::vector{PieceHeader{{0, 0}, 2, 3}, PieceHeader{{0, 1}, 1, 2}});
    writer.append(Bytes(8, 1));
    writer.frame(std::vector{PieceHeader{{0, 2}, 2, 50}, PieceHeader{{0, 3}, 1, 90}}, 64, 40);
    writer.append(Bytes(3, 1));
    writer.final(Final());
    auto const original = std::move(writer).take();
    for (int round = 0; round < 300; ++round) {
        LoopbackCluster const pair{2, LoopbackFaults(), by_messages};
        auto const under_attack = Operation::open(*pair[0], br, plan_of(7));
        for (int message = 0; message < 5; ++message) {
            auto bytes = original;
            for (auto flips = random() % 3; flips > 0; --flips) {
                bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
            }
            std::uint64_t asked = 0;
            try {
                for (auto const& frame : read_operation_message(bytes).frames) {
                    for (auto const& piece : frame.pieces) {
                        asked += piece.data_size;
                    }
                }
            } catch (FormatError const&) {
                asked = 0;
            }
            if (asked < (std::uint64_t{1} << 26U)) {  // this machine would have to allocate it
                (void)pair[1]->send(std::move(bytes), 0, control);
            }
        }
        // The last is certainly bad, so the operation has looked at all when it fails.
        (void)pair[1]->send(Bytes{0}, 0, control);
        while (!pair[0]->failure()) {
            std::this_thread::yield();
        }
        EXPECT_EQ(pair[0]->failure()->rank, 1);
        EXPECT_THROW(under_attack->wait_on(0, patience), RankFailedError);
        under_attack->release();
    }
}

}  // namespace
}  // namespace rapidsmpf::exchange

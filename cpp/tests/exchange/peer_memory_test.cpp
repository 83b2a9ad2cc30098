// Peer memory with one side played by hand: who may write where, when, and what becomes of a block that was granted and
// not written.
#include "exchange/peer_memory.hpp"

#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "about_the_cpu.hpp"

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;
using device::SharedMemory;
constexpr std::chrono::milliseconds patience{60'000};
constexpr std::size_t KiB = 1024;
Tag const control{OperationDispatcher::control_op, 0};

Operation::Plan plan_of(OpId op, Settings const& settings = Settings()) {
    Operation::Plan plan;
    plan.kind = "shuffle";
    plan.op = op;
    plan.total = 2;
    plan.owner = [](PartitionId partition) { return static_cast<Rank>(partition); };
    plan.settings = settings;
    return plan;
}

// Rank 0 is an operation, rank 1 is this test.
class PeerMemoryTest : public testing::Test {
  protected:
    void SetUp() override { RAPIDSMPF_ABOUT_THE_CPU(); }

    explicit PeerMemoryTest(BufferResource::Settings settings = counting())
        : br{BufferResource::make(std::move(settings))} {
        std::string reason;
        mine = PeerMemory::make(*cluster[1], reason);
        if (!mine) {
            throw std::runtime_error{reason};
        }
        operation = Operation::open(*cluster[0], br, plan_of(7));
    }
    ~PeerMemoryTest() override { operation->release(); }

    // The next message for rank 1, which belongs to the operation; its bytes live until the next call.
    OperationMessage hear() { return read_operation_message(hear_bytes()); }
    // The same for a message about all operations.
    template <typename Said>
    Said hear() {
        return std::get<Said>(read_control_message(hear_bytes()));
    }
    Bytes const& hear_bytes() {
        for (;;) {
            if (auto arrived = cluster[1]->recv_any(control)) {
                heard_ = std::move(arrived->bytes);
                return heard_;
            }
            std::this_thread::yield();
        }
    }
    void say(MessageWriter writer) { (void)cluster[1]->send(std::move(writer).take(), 0, control); }
    void offer(Bytes memory) {
        MessageWriter writer{OperationDispatcher::control_op};
        writer.offer(Offer{TransportKind::peer_memory, std::move(memory)});
        say(std::move(writer));
    }
    void answer(TransportKind kind, std::string reason = "") {
        MessageWriter writer{OperationDispatcher::control_op};
        writer.answer(Answer{kind, std::move(reason)});
        say(std::move(writer));
    }
    // Both ranks map each other's memory.
    void agree() {
        offer(mine->offer());
        auto const theirs = hear<Offer>();
        EXPECT_EQ(mine->accept(0, theirs.memory), "");
        EXPECT_EQ(hear<Answer>().kind, TransportKind::peer_memory);
        answer(TransportKind::peer_memory);
    }
    void announce(std::vector<std::uint64_t> const& sizes) {
        std::vector<PieceHeader> pieces;
        for (auto const size : sizes) {
            pieces.emplace_back(PieceId{0, announced_++}, 1, size);
        }
        MessageWriter writer{7};
        writer.frame(pieces, 64 * KiB, 1 << 20);
        writer.append(Bytes(sizes.size(), 9));
        say(std::move(writer));
    }
    void written(std::uint32_t frames) {
        MessageWriter writer{7};
        writer.written(frames);
        say(std::move(writer));
    }
    [[nodiscard]] std::shared_ptr<Buffer const> filled(std::size_t size, int value) const {
        auto buffer = br->allocate(MemoryType::DEVICE, size);
        if (size > 0) {
            std::memset(buffer->mutable_host_bytes().data(), value, size);
        }
        return buffer;
    }
    // Writes pieces of these sizes, the bytes of piece i being first + i; sends no notice of it.
    void write(std::vector<std::uint64_t> const& sizes, std::vector<RemoteAddress> addresses, int first) {
        SendTransfer::Pieces pieces;
        for (auto const size : sizes) {
            pieces.push_back(filled(size, first++));
        }
        auto const send_transfer = mine->write(route(), std::move(pieces), std::move(addresses), Settings());
        EXPECT_TRUE(send_transfer->start());
        EXPECT_TRUE(send_transfer->needs_notice());
        while (!send_transfer->poll()) {
            EXPECT_TRUE(mine->progress());
        }
    }
    [[nodiscard]] Transport::PeerRoute route() const { return {0, Tag{7, 1}, br}; }
    std::string failure() {
        for (;;) {
            if (auto const failed = cluster[0]->failure()) {
                return "rank " + std::to_string(failed->rank) + ": " + failed->reason;
            }
            std::this_thread::yield();
        }
    }

    static BufferResource::Settings counting() {
        BufferResource::Settings settings;
        settings.statistics = std::make_shared<Statistics>();
        return settings;
    }

    // Has pieces of these sizes written and takes their chunks out.
    std::vector<Operation::Chunk> received(std::vector<std::uint64_t> const& sizes) {
        announce(sizes);
        write(sizes, hear().grants.at(0).addresses, 1);
        written(1);
        std::vector<Operation::Chunk> chunks;
        while (chunks.size() < sizes.size()) {
            for (auto& chunk : operation->extract(0)) {
                chunks.push_back(std::move(chunk));
            }
            std::this_thread::yield();
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            auto const bytes = chunks[i].data.data->host_bytes();
            EXPECT_EQ(bytes.size(), sizes[i]);
            EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte byte) {
                return byte == static_cast<std::byte>(i + 1);
            })) << i;
        }
        return chunks;
    }
    static bool is_in_shared_memory(Operation::Chunk const& chunk) {
        std::string reason;
        auto const* const memory = SharedMemory::current(reason);
        auto const* const at = chunk.data.data->data();
        return at >= memory->base() && at < memory->base() + memory->ticket().size;
    }

    std::shared_ptr<BufferResource> br;
    LoopbackCluster cluster{2};
    std::unique_ptr<PeerMemory> mine;
    std::shared_ptr<Operation> operation;

  private:
    Bytes heard_;
    std::uint64_t announced_{0};
};

TEST_F(PeerMemoryTest, PiecesAreWrittenToWhereTheyAreGranted) {
    agree();
    std::vector<std::uint64_t> const sizes{100'000, 10, 0, 3'000'000, 5'000, 20'000, 1};
    announce(sizes);
    auto const granted = hear();
    ASSERT_EQ(granted.grants.size(), 1U);
    ASSERT_EQ(granted.grants[0].addresses.size(), 6U);
    write(sizes, granted.grants[0].addresses, 1);
    written(1);
    MessageWriter counts{7};
    counts.counts(std::vector{PartitionCount{0, sizes.size()}});
    say(std::move(counts));
    operation->insert_finished();
    operation->wait_on(0, patience);
    auto const chunks = operation->extract(0);
    ASSERT_EQ(chunks.size(), sizes.size());
    auto const in_place = SharedMemory::used();
    EXPECT_GT(in_place, 3'100'000U);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto const bytes = chunks[i].data.data->host_bytes();
        ASSERT_EQ(bytes.size(), sizes[i]);
        EXPECT_EQ(chunks[i].data.data->mem_type(), MemoryType::DEVICE);
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte byte) {
            return byte == static_cast<std::byte>(i + 1);
        })) << i;
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 3'125'011);  // the pieces, once
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
}

TEST_F(PeerMemoryTest, SmallPiecesStayWhereTheyLand) {
    agree();
    std::vector<std::uint64_t> const sizes{5'000, 1, 300, 64};
    auto chunks = received(sizes);
    for (auto const& chunk : chunks) {
        EXPECT_TRUE(is_in_shared_memory(chunk));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(chunk.data.data->data()) % 64, 0U);
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 5'365);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
    chunks.erase(chunks.begin(), chunks.begin() + 2);  // the others are there as long as they are wanted
    EXPECT_EQ(chunks[0].data.data->host_bytes()[299], std::byte{3});
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 364);
}

// Where more than half of the memory is taken.
class PeerMemoryShortTest : public PeerMemoryTest {
  protected:
    PeerMemoryShortTest() : PeerMemoryTest{limited()} {}
    static BufferResource::Settings limited() {
        auto settings = counting();
        settings.limits[0] = static_cast<std::int64_t>(1000 * KiB);
        settings.available[0] = [] { return BufferResource::unlimited; };
        return settings;
    }
};

TEST_F(PeerMemoryShortTest, SmallPiecesAreCopiedOut) {
    agree();
    auto const much = br->allocate(MemoryType::DEVICE, 600 * KiB);
    for (auto const& chunk : received({5'000, 1, 300, 64})) {
        EXPECT_FALSE(is_in_shared_memory(chunk));
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), static_cast<std::int64_t>(600 * KiB));
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
}

TEST_F(PeerMemoryTest, ABlockIsReusedWhenItsChunkIsGone) {
    agree();
    std::optional<RemoteAddress> first;
    for (int round = 0; round < 5; ++round) {
        announce({200'000});
        auto message = hear();
        while (message.grants.empty()) {
            message = hear();
        }
        auto const addresses = message.grants[0].addresses;
        first = first.value_or(addresses.at(0));
        EXPECT_EQ(addresses.at(0), *first);
        write({200'000}, addresses, round);
        written(1);
        while (operation->extract(0).empty()) {
            std::this_thread::yield();
        }
    }
}

TEST_F(PeerMemoryTest, AChunkInABlockIsSpilledAsAnyOther) {
    agree();
    announce({200'000});
    auto const addresses = hear().grants.at(0).addresses;
    write({200'000}, addresses, 5);
    auto const used = SharedMemory::used();
    written(1);
    while (operation->spill(1) == 0) {
        std::this_thread::yield();
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
    EXPECT_LT(SharedMemory::used(), used);
    auto const chunks = operation->extract(0);
    ASSERT_EQ(chunks.size(), 1U);
    auto memory = br->reserve(MemoryType::DEVICE, 200'000, AllowOverbooking::yes).first;
    auto const back = br->copy(*chunks[0].data.data, 0, 200'000, memory);
    EXPECT_EQ(back->host_bytes()[199'999], std::byte{5});
}

TEST_F(PeerMemoryTest, NothingIsGrantedBeforeTheAnswer) {
    offer(mine->offer());
    auto const theirs = hear<Offer>();
    EXPECT_EQ(mine->accept(0, theirs.memory), "");
    (void)hear<Answer>();
    announce({100'000});
    MessageWriter eager{7};
    eager.eager(std::vector{PieceHeader{{0, 9}, 1, 1}});
    eager.append(Bytes{1, 2});
    say(std::move(eager));
    while (operation->extract(0).empty()) {  // it has read what was announced
        std::this_thread::yield();
    }
    EXPECT_FALSE(cluster[1]->recv_any(control));
    answer(TransportKind::peer_memory);
    EXPECT_EQ(hear().grants.at(0).addresses.size(), 1U);
}

TEST_F(PeerMemoryTest, WhoDoesNotMapTheMemoryGetsMessages) {
    offer(mine->offer());
    (void)hear<Offer>();
    (void)hear<Answer>();
    answer(TransportKind::messages, "not today");
    announce({100'000});
    auto const granted = hear();
    ASSERT_EQ(granted.granted(), 1U);
    EXPECT_TRUE(granted.grants[0].addresses.empty());
}

TEST_F(PeerMemoryTest, WhoCannotBeMappedGetsMessages) {
    auto memory = mine->offer();
    memory.back() ^= 1U;  // in the name of the host
    offer(std::move(memory));
    EXPECT_EQ(mine->accept(0, hear<Offer>().memory), "");
    auto const said = hear<Answer>();
    EXPECT_EQ(said.kind, TransportKind::messages);
    EXPECT_EQ(said.reason, "it is on another host, or in another pid namespace");
    answer(TransportKind::peer_memory);
    announce({100'000});
    EXPECT_TRUE(hear().grants.at(0).addresses.empty());
}

TEST_F(PeerMemoryTest, WhoBeginsWithSomethingElseGetsMessages) {
    announce({100'000});
    auto const granted = hear();  // no offer: there is no use in it
    EXPECT_TRUE(granted.grants.at(0).addresses.empty());
}

TEST_F(PeerMemoryTest, AnAbandonedFrameGivesItsBlocksBack) {
    agree();
    announce({100'000, 200'000});
    ASSERT_EQ(hear().grants.at(0).addresses.size(), 2U);
    auto const used = SharedMemory::used();
    Final last;
    last.kind = FinalKind::abandoned;
    last.origin = 1;
    last.reason = "enough";
    MessageWriter writer{7};
    writer.final(last);
    say(std::move(writer));
    EXPECT_THROW(operation->wait_on(0, patience), std::runtime_error);
    while (!hear().final) {
    }
    while (SharedMemory::used() >= used) {
        std::this_thread::yield();
    }
    EXPECT_EQ(SharedMemory::quarantined_for_testing(), 0U);
}

// After a failure no rank receives: whether the peer still writes shows in its memory only.
TEST_F(PeerMemoryTest, ABlockIsOutOfUseUntilThePeerWritesNoMore) {
    agree();
    announce({100'000});
    auto const address = hear().grants.at(0).addresses.at(0);
    cluster.kill(1, "killed by the test");
    EXPECT_THROW(operation->wait_on(0, patience), RankFailedError);
    while (SharedMemory::quarantined_for_testing() == 0) {
        std::this_thread::yield();
    }
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);  // it is not theirs any more
    std::string reason;
    auto& memory = *SharedMemory::current(reason);
    std::vector<std::shared_ptr<device::SharedBlock>> others;
    for (int i = 0; i < 20; ++i) {
        others.push_back(memory.allocate(100'000));
        EXPECT_NE(others.back()->offset(), address.offset);
    }
    others.clear();
    mine->close();
    EXPECT_EQ(SharedMemory::quarantined_for_testing(), 0U);
}

TEST_F(PeerMemoryTest, AfterAFailureItShowsThatItWritesNoMore) {
    agree();
    announce({100'000});
    (void)hear();
    // What this rank has granted to rank 0.
    MessageWriter list{7};
    list.frame(std::vector{PieceHeader{{1, 0}, 1, 50'000}}, 64, 1 << 20);
    list.append(Bytes{9});
    auto const bytes = std::move(list).take();
    auto const message = read_operation_message(bytes);
    ReceiveBudget budget;
    AnnouncedFrame frame{message.frames.at(0), budget};
    auto memory = br->reserve(MemoryType::DEVICE, frame.memory_needed(), AllowOverbooking::yes).first;
    auto receive_transfer = mine->grant(route(), frame, memory);
    ASSERT_NE(receive_transfer, nullptr);
    receive_transfer.reset();
    EXPECT_GT(SharedMemory::quarantined_for_testing(), 0U);
    cluster.kill(1, "killed by the test");
    mine->close();
    while (SharedMemory::quarantined_for_testing() > 0) {
        std::this_thread::yield();
    }
}

TEST_F(PeerMemoryTest, AWriteGoesInSlicesAndStopsWhenNobodyWantsIt) {
    agree();
    announce({5'000'000});
    auto const addresses = hear().grants.at(0).addresses;
    SendTransfer::Pieces pieces;
    pieces.push_back(filled(5'000'000, 1));
    auto send_transfer = mine->write(route(), std::move(pieces), addresses, Settings());
    EXPECT_TRUE(mine->progress());
    EXPECT_FALSE(send_transfer->poll());
    send_transfer.reset();  // stops it
    EXPECT_FALSE(mine->progress());
    EXPECT_EQ(br->statistics()->get("exchange-peer-memory-bytes").value, 1 << 20);
}

// Each of these must end as the failure of rank 1.
class MalformedPeer : public PeerMemoryTest {
  protected:
    void expect(std::string const& why) {
        auto const said = failure();
        EXPECT_EQ(said.find("rank 1: it sent a malformed message"), 0U) << said;
        EXPECT_NE(said.find(why), std::string::npos) << said;
        EXPECT_THROW(operation->insert_finished(), RankFailedError);
    }
    void insert(std::size_t size) {
        std::vector<std::pair<PartitionId, PackedData>> chunks;
        chunks.emplace_back(1, PackedData{{1}, br->allocate(MemoryType::DEVICE, size)});
        operation->insert(std::move(chunks));
    }
    void grant(std::vector<RemoteAddress> const& addresses) {
        agree();
        insert(100'000);
        EXPECT_EQ(hear().frames.size(), 1U);
        MessageWriter writer{7};
        writer.addresses(addresses);
        say(std::move(writer));
    }
};

TEST_F(MalformedPeer, WrittenWithoutAddresses) {
    agree();
    written(1);
    expect("it wrote more frames than it was given addresses for");
}

TEST_F(MalformedPeer, FinishedWithoutWriting) {
    agree();
    announce({100'000});
    (void)hear();
    MessageWriter writer{7};
    writer.final(Final());
    say(std::move(writer));
    expect("it did not write all frames that it was given addresses for");
}

TEST_F(MalformedPeer, AddressesOutsideOfItsMemory) {
    std::string reason;
    grant({RemoteAddress{0, SharedMemory::current(reason)->ticket().size - 10}});
    expect("it gave an address outside of its memory");
}

TEST_F(MalformedPeer, AddressesInTheFirstPages) {
    grant({RemoteAddress{0, 4096}});
    expect("it gave an address outside of its memory");
}

TEST_F(MalformedPeer, AddressesInAnotherRegion) {
    grant({RemoteAddress{1, SharedMemory::first_offset}});
    expect("it gave an address outside of its memory");
}

TEST_F(MalformedPeer, TooManyAddresses) {
    grant({RemoteAddress{0, SharedMemory::first_offset}, RemoteAddress{0, SharedMemory::first_offset}});
    expect("it gave 2 addresses for 1 pieces");
}

TEST_F(MalformedPeer, AddressesThatWereNotOffered) {
    insert(100'000);
    (void)hear<Offer>();
    EXPECT_EQ(hear().frames.size(), 1U);
    MessageWriter writer{7};
    writer.addresses(std::vector{RemoteAddress{0, SharedMemory::first_offset}});
    say(std::move(writer));
    expect("it gave addresses in memory that it has not offered");
}

TEST_F(MalformedPeer, TwoOffers) {
    offer(mine->offer());
    offer(mine->offer());
    expect("it offered its memory too late");
}

TEST_F(MalformedPeer, AnAnswerToNothing) {
    answer(TransportKind::peer_memory);
    expect("it answered what nobody asked");
}

TEST_F(MalformedPeer, AnOfferOfAnyBytes) {
    offer(Bytes{1, 2, 3});
    expect("an offer of memory ends too early");
}

TEST_F(MalformedPeer, AWordOutsideOfItsMemory) {
    auto memory = mine->offer();
    std::fill(memory.begin() + 16, memory.begin() + 24, std::uint8_t{0xff});
    offer(std::move(memory));
    expect("its flag is outside of its memory");
}

// Whatever is offered, it ends with an answer or a failure, and nothing is touched that is not shared memory.
TEST(AnyOffer, IsAnsweredOrRefused) {
    std::mt19937_64 random{5};
    LoopbackCluster const cluster{2};
    std::string reason;
    auto const good = PeerMemory::make(*cluster[1], reason);
    ASSERT_NE(good, nullptr) << reason;
    auto const original = good->offer();
    auto const under_attack = PeerMemory::make(*cluster[0], reason);
    for (int round = 0; round < 500; ++round) {
        auto bytes = original;
        for (auto flips = 1 + random() % 3; flips > 0; --flips) {
            bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
        }
        try {
            (void)under_attack->accept(1, bytes);
        } catch (FormatError const&) {  // NOLINT(bugprone-empty-catch)
        }
    }
    EXPECT_EQ(under_attack->accept(1, original), "");
}

}  // namespace
}  // namespace rapidsmpf::exchange

// Many small chunks in one insert: one side of the protocol played by hand.
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "about_the_cpu.hpp"
#include "exchange/bundle.hpp"

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Chunks = std::vector<std::pair<PartitionId, PackedData>>;
constexpr PartitionId partitions = 8;
config::Options const by_messages{config::Strings{{"peer_memory", "off"}}};
Tag const control{OperationDispatcher::control_op, 0};

// Rank 0 is an operation and owns the even partitions, rank 1 is this test.
class Bundles : public testing::Test {
  protected:
    ~Bundles() override {
        if (operation) {
            operation->release();
        }
    }

    void open(Settings const& settings = Settings()) {
        Operation::Plan plan;
        plan.kind = "shuffle";
        plan.op = 7;
        plan.total = partitions;
        plan.owner = [](PartitionId partition) { return static_cast<Rank>(partition % 2); };
        plan.settings = settings;
        operation = Operation::open(*cluster[0], br, std::move(plan));
    }
    // No memory to spare, and no function that measures what this process takes.
    void have_little_memory() {
        BufferResource::Settings limits;
        limits.limits[0] = 10'000;
        limits.available[0] = [] { return BufferResource::unlimited; };
        br = BufferResource::make(std::move(limits));
        held = br->allocate(MemoryType::DEVICE, 6'000);
    }

    [[nodiscard]] PackedData chunk(PartitionId partition, std::size_t size) const {
        auto buffer = br->allocate(
            br->device().kind() == DeviceKind::cpu ? MemoryType::DEVICE : MemoryType::HOST, size);
        auto const bytes = buffer->mutable_host_bytes();
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(partition));
        return {{1, static_cast<std::uint8_t>(partition)}, std::move(buffer)};
    }
    [[nodiscard]] Chunks one_each(std::size_t size) const {
        Chunks chunks;
        for (PartitionId p = 0; p < partitions; ++p) {
            chunks.emplace_back(p, chunk(p, size));
        }
        return chunks;
    }
    // One each in one block, those of a rank side by side.
    [[nodiscard]] Chunks neighbours(std::size_t size) const {
        auto whole = chunk(0, partitions * size).data;
        auto const bytes = whole->mutable_host_bytes();
        Chunks chunks;
        for (PartitionId i = 0; i < partitions; ++i) {
            auto const p = i < partitions / 2 ? 2 * i : 2 * i - partitions + 1;
            std::fill_n(
                bytes.begin() + static_cast<std::ptrdiff_t>(i * size), size, static_cast<std::byte>(p));
            chunks.emplace_back(
                p, PackedData{Bytes{1, static_cast<std::uint8_t>(p)}, whole->split_off(i * size, size)});
        }
        return chunks;
    }
    // As rank 1 would make them of chunks for rank 0, the first with these numbers.
    [[nodiscard]] NewBundle bundle(std::size_t size, std::uint64_t sequence) const {
        Chunks chunks;
        for (PartitionId p = 0; p < partitions; p += 2) {
            chunks.emplace_back(p, chunk(p, size));
        }
        auto made = std::move(make_bundles(chunks, *br, {1'000, 0, 10'000}).at(0));
        for (std::size_t i = 0; i < made.partitions.size(); ++i) {
            set_bundle_sequence(made.packed.metadata, i, sequence);
        }
        return made;
    }
    [[nodiscard]] MessageWriter eager(NewBundle const& bundle) const {
        MessageWriter writer{7};
        auto const data = bundle.packed.data->host_bytes();
        writer.eager(
            std::vector{PieceHeader{
                PieceId::bundle_of(bundle.partitions.size()), bundle.packed.metadata.size(), data.size()}});
        writer.append(bundle.packed.metadata);
        writer.append({reinterpret_cast<std::uint8_t const*>(data.data()), data.size()});
        return writer;
    }

    // What is to be extracted, and that it is what it should be.
    void expect_chunks(PartitionId partition, std::size_t size, std::vector<std::uint64_t> const& sequences) {
        std::vector<std::uint64_t> found;
        for (auto& [source, sequence, data] : operation->extract(partition)) {
            found.push_back(sequence);
            EXPECT_EQ(data.metadata, (Bytes{1, static_cast<std::uint8_t>(partition)}));
            auto const buffer = br->move_to_host_access(std::move(data.data));
            EXPECT_EQ(buffer->size(), size);
            for (auto const byte : buffer->host_bytes()) {
                ASSERT_EQ(byte, static_cast<std::byte>(partition));
            }
        }
        EXPECT_EQ(found, sequences);
    }

    OperationMessage hear() {
        for (;;) {
            if (auto arrived = cluster[1]->recv_any(control)) {
                heard_ = std::move(arrived->bytes);
                return read_operation_message(heard_);
            }
            std::this_thread::yield();
        }
    }
    void say(MessageWriter writer) { (void)cluster[1]->send(std::move(writer).take(), 0, control); }
    void wait_until_received(PartitionId partition, std::uint64_t chunks) const {
        while (operation->received(partition).at(1) < chunks) {
            std::this_thread::yield();
        }
    }
    std::string failure() {
        for (;;) {
            if (auto const failed = cluster[0]->failure()) {
                return "rank " + std::to_string(failed->rank) + ": " + failed->reason;
            }
            std::this_thread::yield();
        }
    }
    void refuse(MessageWriter writer, std::string const& why) {
        open();
        say(std::move(writer));
        EXPECT_EQ(failure(), "rank 1: it sent a malformed message for shuffle 7: " + why);
        EXPECT_THROW(operation->insert_finished(), RankFailedError);
    }

    std::shared_ptr<BufferResource> br = BufferResource::make();
    std::unique_ptr<Buffer> held;
    LoopbackCluster cluster{2, LoopbackFaults(), by_messages};
    std::shared_ptr<Operation> operation;

  private:
    Bytes heard_;
};

TEST_F(Bundles, SmallChunksOfOneInsertAreOnePiece) {
    open();
    operation->insert(one_each(100));
    auto const message = hear();
    ASSERT_EQ(message.eager.at(0).pieces.size(), 1U);
    auto const& piece = message.eager[0].pieces[0];
    ASSERT_TRUE(piece.id.is_bundle());
    auto const chunks = read_bundle(piece.id.chunks(), message.eager[0].metadata, piece.data_size);
    ASSERT_EQ(chunks.size(), 4U);
    EXPECT_EQ(chunks[2].partition, 5U);
    EXPECT_EQ(chunks[2].sequence, 0U);
    EXPECT_EQ(message.eager[0].data[chunks[2].data.offset], 5);
}

TEST_F(Bundles, LargeChunksAreNotCopiedToBePutTogether) {
    Settings settings;
    settings.gather_limit = 99;
    open(settings);
    auto chunks = one_each(100);
    chunks[3] = {3, chunk(3, 5)};
    operation->insert(std::move(chunks));
    auto const message = hear();
    ASSERT_EQ(message.frames.at(0).pieces.size(), 4U);
    for (auto const& piece : message.frames[0].pieces) {
        EXPECT_FALSE(piece.id.is_bundle());
    }
}

TEST_F(Bundles, LargeNeighboursAreOnePiece) {
    Settings settings;
    settings.gather_limit = 99;
    open(settings);
    operation->insert(neighbours(12'800));
    auto const message = hear();
    ASSERT_EQ(message.frames.at(0).pieces.size(), 1U);
    EXPECT_EQ(message.frames[0].pieces[0].data_size, 4 * 12'800U);
    expect_chunks(4, 12'800, {0});
}

TEST_F(Bundles, WithLittleMemoryLargeNeighboursAreChunksLikeOthers) {
    RAPIDSMPF_ABOUT_THE_CPU();
    have_little_memory();
    Settings settings;
    settings.gather_limit = 99;
    open(settings);
    operation->insert(neighbours(128));
    EXPECT_EQ(hear().frames.at(0).pieces.size(), 4U);
    EXPECT_EQ(operation->spill(1), 128U);
}

TEST_F(Bundles, WhatIsForThisRankIsExtractedAsItWasInserted) {
    open();
    for (int i = 0; i < 3; ++i) {
        operation->insert(one_each(100));
    }
    operation->insert_finished();
    for (PartitionId p = 0; p < partitions; p += 2) {
        EXPECT_EQ(operation->received(p), (std::vector<std::uint64_t>{3, 0}));
        expect_chunks(p, 100, {0, 1, 2});
    }
}

TEST_F(Bundles, AFinishedPartitionTakesNothing) {
    open();
    operation->insert_finished({6});
    EXPECT_THROW(operation->insert(one_each(100)), std::logic_error);
    Chunks beyond;
    beyond.emplace_back(0, chunk(0, 1));
    beyond.emplace_back(partitions, chunk(0, 1));
    EXPECT_THROW(operation->insert(std::move(beyond)), std::out_of_range);
}

TEST_F(Bundles, WhatComesIsExtractedInTheOrderOfItsNumbers) {
    open();
    say(eager(bundle(50, 1)));
    say(eager(bundle(50, 0)));
    for (PartitionId p = 0; p < partitions; p += 2) {
        wait_until_received(p, 2);
        expect_chunks(p, 50, {0, 1});
    }
}

TEST_F(Bundles, WhatWaitsToBeExtractedIsSpilledAndReadChunkByChunk) {
    RAPIDSMPF_ABOUT_THE_CPU();
    open();
    say(eager(bundle(50, 0)));
    wait_until_received(6, 1);
    expect_chunks(0, 50, {0});
    EXPECT_GE(operation->spill(1), 150U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->memory_used(MemoryType::DISK), 150);
    expect_chunks(2, 50, {0});
    EXPECT_EQ(br->memory_used(MemoryType::DISK), 100);
    expect_chunks(4, 50, {0});
    expect_chunks(6, 50, {0});
}

// Each has memory of its own: what is spilled of one partition frees what it takes.
TEST_F(Bundles, WithLittleMemoryTheyAreToldApart) {
    RAPIDSMPF_ABOUT_THE_CPU();
    have_little_memory();
    open();
    say(eager(bundle(50, 0)));
    wait_until_received(6, 1);
    EXPECT_EQ(operation->spill(1), 50U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 6'000 + 150);
    auto chunks = operation->extract(6);
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].data.data->mem_type(), MemoryType::DISK);
    expect_chunks(0, 50, {0});
}

TEST_F(Bundles, WhatIsInsertedWithLittleMemoryIsNotPutTogetherHere) {
    RAPIDSMPF_ABOUT_THE_CPU();
    have_little_memory();
    open();
    operation->insert(one_each(10));
    EXPECT_TRUE(hear().eager.at(0).pieces.at(0).id.is_bundle());
    EXPECT_EQ(operation->spill(1), 10U);
    expect_chunks(0, 10, {0});
    expect_chunks(6, 10, {0});
}

TEST_F(Bundles, APartitionOfAnotherRankIsRefused) {
    auto wrong = bundle(50, 0);
    wrong.packed.metadata[0] = 1;  // the first chunk's partition
    refuse(eager(wrong), "partition 1 is not one of this rank's");
}

TEST_F(Bundles, APartitionOfAnotherRankIsRefusedWhenItIsAnnounced) {
    auto wrong = bundle(50, 0);
    wrong.packed.metadata[0] = 1;
    MessageWriter writer{7};
    writer.frame(
        std::vector{PieceHeader{
            PieceId::bundle_of(wrong.partitions.size()), wrong.packed.metadata.size(),
            wrong.packed.data->size()}},
        64, 1'000);
    writer.append(wrong.packed.metadata);
    refuse(std::move(writer), "partition 1 is not one of this rank's");
}

TEST_F(Bundles, WhatDoesNotAddUpIsRefused) {
    auto wrong = bundle(50, 0);
    wrong.packed.metadata[16] = 51;  // bytes of the first chunk: the others still begin where they did
    EXPECT_NO_THROW((void)read_bundle(4, wrong.packed.metadata, wrong.packed.data->size()));
    wrong.packed.metadata[16] = 65;
    refuse(eager(wrong), "the chunks of a bundle do not add up");
}

TEST_F(Bundles, MoreChunksThanAnnounced) {
    MessageWriter writer = eager(bundle(50, 0));
    open();
    MessageWriter counts{7};
    counts.counts(std::vector{PartitionCount{4, 0}});
    say(std::move(counts));
    say(std::move(writer));
    EXPECT_EQ(
        failure(),
        "rank 1: it sent a malformed message for shuffle 7: more chunks for partition 4 than were announced");
}

}  // namespace
}  // namespace rapidsmpf::exchange

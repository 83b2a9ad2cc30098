#include "exchange/wire.hpp"

#include <random>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes full_message() {
    MessageWriter writer{42};
    writer.grants(3);
    writer.credit(1000);
    writer.counts(std::vector{PartitionCount{1, 5}, PartitionCount{9, 0}});
    writer.eager(std::vector{PieceHeader{{1, 7}, 2, 3}, PieceHeader{{2, 8}, 1, 0}});
    writer.append(Bytes{10, 11, 12});
    writer.append(Bytes{20, 21, 22});
    writer.frame(std::vector{PieceHeader{{4, 1}, 1, 5'000'000'000}}, 64, 1000);
    writer.append(Bytes{30});
    Final final;
    final.kind = FinalKind::abandoned;
    final.payload_messages = 77;
    final.origin = 2;
    final.reason = "tired";
    writer.final(final);
    return std::move(writer).take();
}

TEST(Wire, AMessageComesBackAsItWasWritten) {
    auto const bytes = full_message();
    EXPECT_EQ(read_op(bytes), 42);
    auto const message = read_operation_message(bytes);
    EXPECT_EQ(message.granted(), 3U);
    EXPECT_EQ(message.credit, 1000U);
    ASSERT_EQ(message.counts.size(), 2U);
    EXPECT_EQ(message.counts[1].partition, 9U);
    EXPECT_EQ(message.counts[0].chunks, 5U);
    ASSERT_EQ(message.eager.size(), 1U);
    EXPECT_EQ(message.eager[0].pieces[1].id.sequence(), 8U);
    EXPECT_EQ(Bytes(message.eager[0].metadata.begin(), message.eager[0].metadata.end()), (Bytes{10, 11, 12}));
    EXPECT_EQ(Bytes(message.eager[0].data.begin(), message.eager[0].data.end()), (Bytes{20, 21, 22}));
    ASSERT_EQ(message.frames.size(), 1U);
    EXPECT_EQ(message.frames[0].pieces[0].data_size, 5'000'000'000U);
    EXPECT_EQ(message.frames[0].gather_limit, 64U);
    EXPECT_EQ(message.frames[0].split_bytes, 1000U);
    ASSERT_TRUE(message.final);
    EXPECT_EQ(message.final->kind, FinalKind::abandoned);
    EXPECT_EQ(message.final->payload_messages, 77U);
    EXPECT_EQ(message.final->origin, 2);
    EXPECT_EQ(message.final->reason, "tired");
}

TEST(Wire, AnAbandonedRangeComesBackAsItWasWritten) {
    MessageWriter writer{9};
    writer.abandon(AbandonedRange{4096, 8191, 3, "ValueError: no"});
    auto const bytes = std::move(writer).take();
    auto const message = read_control_message(bytes);
    auto const* const range = std::get_if<AbandonedRange>(&message);
    ASSERT_NE(range, nullptr);
    EXPECT_EQ(range->first, 4096);
    EXPECT_EQ(range->last, 8191);
    EXPECT_EQ(range->origin, 3);
    EXPECT_EQ(range->reason, "ValueError: no");
    EXPECT_TRUE(range->contains(4096) && range->contains(8191));
    EXPECT_FALSE(range->contains(4095) || range->contains(8192));
    for (std::size_t size = 9; size < bytes.size(); ++size) {
        EXPECT_THROW((void)read_control_message(std::span{bytes}.first(size)), FormatError) << size;
    }
    MessageWriter backwards{9};
    backwards.abandon(AbandonedRange{5, 4, 0, ""});
    EXPECT_THROW((void)read_control_message(std::move(backwards).take()), FormatError);
}

TEST(Wire, AHeaderAloneIsAGoodbye) {
    EXPECT_TRUE(std::holds_alternative<Goodbye>(read_control_message(MessageWriter{9}.take())));
}

TEST(Wire, WhatIsAboutTransportsComesBackAsItWasWritten) {
    MessageWriter offer{9};
    offer.offer(Offer{TransportKind::peer_memory, Bytes{1, 2}});
    auto const offered = std::get<Offer>(read_control_message(std::move(offer).take()));
    EXPECT_EQ(offered.kind, TransportKind::peer_memory);
    EXPECT_EQ(offered.memory, (Bytes{1, 2}));
    MessageWriter answer{9};
    answer.answer(Answer{TransportKind::messages, "no"});
    auto const answered = std::get<Answer>(read_control_message(std::move(answer).take()));
    EXPECT_EQ(answered.kind, TransportKind::messages);
    EXPECT_EQ(answered.reason, "no");
    MessageWriter region{9};
    region.region(device::ExportedRegion{3, 4096, Bytes{7}});
    auto const exported = std::get<device::ExportedRegion>(read_control_message(std::move(region).take()));
    EXPECT_EQ(exported.id, 3U);
    EXPECT_EQ(exported.size, 4096U);
    EXPECT_EQ(exported.handle, Bytes{7});
}

TEST(Wire, WhatIsOfOperationsAndWhatIsAboutAllOfThemAreNotMixed) {
    EXPECT_THROW((void)read_control_message(full_message()), FormatError);
    MessageWriter twice{9};
    twice.answer(Answer{});
    twice.answer(Answer{});
    EXPECT_THROW((void)read_control_message(std::move(twice).take()), FormatError);
    MessageWriter offer{9};
    offer.offer(Offer{});
    EXPECT_THROW((void)read_operation_message(std::move(offer).take()), FormatError);
}

// On the wire a bundle is a piece of the partition that no partition is.
TEST(Wire, ABundleSaysHowManyChunksItHas) {
    MessageWriter writer{9};
    writer.frame(std::vector{PieceHeader{PieceId::bundle_of(5), 1, 2}, PieceHeader{{4, 5}, 1, 2}}, 64, 1000);
    writer.append(Bytes{1, 2});
    auto const bytes = std::move(writer).take();
    EXPECT_EQ(
        Bytes(bytes.begin() + 29, bytes.begin() + 41), (Bytes{255, 255, 255, 255, 5, 0, 0, 0, 0, 0, 0, 0}));
    auto const pieces = read_operation_message(bytes).frames.at(0).pieces;
    EXPECT_TRUE(pieces.at(0).id.is_bundle());
    EXPECT_EQ(pieces[0].id.chunks(), 5U);
    EXPECT_FALSE(pieces.at(1).id.is_bundle());
    EXPECT_EQ(pieces[1].id.partition(), 4U);
    EXPECT_EQ(pieces[1].id.sequence(), 5U);
    EXPECT_EQ(pieces[1].id.chunks(), 1U);
}

TEST(Wire, AWriterKnowsWhetherItHasSomethingToSay) {
    MessageWriter writer{1};
    EXPECT_FALSE(writer.has_sections());
    writer.grants(1);
    EXPECT_TRUE(writer.has_sections());
}

// A message that ends after a section is a shorter one; any other end is an error, and none is more than that.
TEST(Wire, CutMessagesAreRefused) {
    auto const bytes = full_message();
    std::size_t refused = 0;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        try {
            (void)read_operation_message(std::span{bytes}.first(size));
        } catch (FormatError const&) {
            ++refused;
        }
    }
    // The whole sections: header, grants, credit, counts, eager, frame.
    EXPECT_EQ(refused, bytes.size() - 6);
}

TEST(Wire, GarbageIsRefusedOrReadWithinItsBounds) {
    std::mt19937_64 random{7};
    auto const original = full_message();
    for (int round = 0; round < 20'000; ++round) {
        auto bytes = original;
        for (auto flips = 1 + random() % 4; flips > 0; --flips) {
            bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
        }
        try {
            auto const message = read_operation_message(bytes);
            for (auto const* lists : {&message.eager, &message.frames}) {
                for (auto const& list : *lists) {
                    std::uint64_t metadata = 0;
                    for (auto const& piece : list.pieces) {
                        metadata += piece.metadata_size;
                    }
                    ASSERT_EQ(metadata, list.metadata.size());
                }
            }
        } catch (FormatError const&) {
            // as it should be
        }
    }
}

Bytes with_piece(PieceHeader const& piece) {
    MessageWriter writer{1};
    writer.frame(std::vector{piece}, 64, 1000);
    return std::move(writer).take();
}

TEST(Wire, SizesThatOverflowAreRefused) {
    EXPECT_THROW(
        (void)read_operation_message(with_piece(PieceHeader{{0, 0}, 1, ~std::uint64_t{0}})), FormatError);
    EXPECT_THROW(
        (void)read_operation_message(with_piece(PieceHeader{{0, 0}, ~std::uint64_t{0}, 1})), FormatError);
}

TEST(Wire, DataWithoutMetadataIsRefused) {
    EXPECT_THROW((void)read_operation_message(with_piece(PieceHeader{{0, 0}, 0, 1})), FormatError);
}

TEST(Wire, AnotherProtocolIsRefused) {
    auto bytes = full_message();
    bytes[0] ^= 1U;
    EXPECT_THROW((void)read_op(bytes), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::exchange

#include "communicator/ucxx_control.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/token.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {
namespace {

using Bytes = std::vector<std::uint8_t>;

Token token_of(std::uint8_t first) {
    std::array<std::uint8_t, Token::size> bytes{};
    bytes.front() = first;
    return Token{bytes};
}

struct Example {
    Bytes bytes;
    std::function<void(Bytes const&)> decode;
};

std::vector<Example> one_of_each() {
    return {
        {JoinMessage{3, Bytes{1, 2, 3}}.encode(token_of(7)),
         [](Bytes const& b) { static_cast<void>(JoinMessage::decode(b, token_of(7))); }},
        {AssignMessage{2, Bytes{9, 8}}.encode(),
         [](Bytes const& b) { static_cast<void>(AssignMessage::decode(b)); }},
        {RefuseMessage{"no"}.encode(), [](Bytes const& b) { static_cast<void>(RefuseMessage::decode(b)); }},
        {TableMessage{{Bytes{1}, Bytes{2, 3}}}.encode(),
         [](Bytes const& b) { static_cast<void>(TableMessage::decode(b)); }},
        {BarrierMessage{ControlKind::arrive, 5}.encode(),
         [](Bytes const& b) { static_cast<void>(BarrierMessage::decode(b)); }},
        {AbortMessage{RankFailure{1, "host", 12, "why"}}.encode(),
         [](Bytes const& b) { static_cast<void>(AbortMessage::decode(b)); }},
    };
}

TEST(UcxxTag, SenderAndTagAreKeptApart) {
    Tag const tag{Tag::max_op_id, 7};
    EXPECT_EQ(sender_of(ucx_tag(tag, 12345)), 12345);
    EXPECT_EQ(sender_of(ucx_tag(tag.in_context(Tag::max_context), max_ranks - 1)), max_ranks - 1);
    EXPECT_NE(ucx_tag(tag, 1) & tag_mask, ucx_tag(tag.in_context(1), 1) & tag_mask);
    EXPECT_EQ(ucx_tag(tag, 1) & tag_mask, ucx_tag(tag, 2) & tag_mask);
    EXPECT_NE(ucx_tag(Tag{1, 0}, 0) & tag_mask, ucx_tag(Tag{0, 1}, 0) & tag_mask);
}

TEST(UcxxTag, ControlMessagesLookLikeNoOthers) {
    EXPECT_EQ(ucx_tag(Tag{Tag::max_op_id, 7}.in_context(Tag::max_context), 0) & control_bit, 0U);
    EXPECT_NE(ucx_control_tag(3) & control_bit, 0U);
    EXPECT_EQ(sender_of(ucx_control_tag(3)), 3);
    EXPECT_EQ(sender_of(ucx_control_tag(-1)), -1);
}

TEST(UcxxControl, FieldsSurvive) {
    auto const join = JoinMessage::decode(one_of_each()[0].bytes, token_of(7));
    EXPECT_EQ(join.nranks, 3);
    EXPECT_EQ(join.address, (Bytes{1, 2, 3}));
    auto const table = TableMessage::decode(one_of_each()[3].bytes);
    EXPECT_EQ(table.addresses, (std::vector<Bytes>{Bytes{1}, Bytes{2, 3}}));
    auto const assign = AssignMessage::decode(one_of_each()[1].bytes);
    EXPECT_EQ(assign.rank, 2);
    EXPECT_EQ(assign.invitation, (Bytes{9, 8}));
    auto const abort = AbortMessage::decode(one_of_each()[5].bytes).failure;
    EXPECT_EQ(abort.rank, 1);
    EXPECT_EQ(abort.host, "host");
    EXPECT_EQ(abort.pid, 12);
    EXPECT_EQ(abort.reason, "why");
}

TEST(UcxxControl, WhoJoinsShowsTheTokenBeforeAnythingIsRead) {
    // What follows the token is no join message: that would be noticed, too, but later.
    auto message = JoinMessage{3, Bytes{1, 2, 3}}.encode(token_of(8));
    message.resize(1 + Token::size);
    try {
        static_cast<void>(JoinMessage::decode(message, token_of(7)));
        FAIL();
    } catch (FormatError const& error) {
        EXPECT_NE(std::string{error.what()}.find("token"), std::string::npos) << error.what();
    }
}

TEST(UcxxTag, AnotherJobsTagsAreOthers) {
    auto const tag = ucx_control_tag(1);
    EXPECT_NE((tag ^ ucx_tag_key(token_of(7))) & tag_mask, (tag ^ ucx_tag_key(token_of(8))) & tag_mask);
    EXPECT_EQ(ucx_tag_key(token_of(7)), std::uint64_t{7} << 56);
}

TEST(UcxxControl, WhatIsCutOrTooLongIsRefused) {
    for (auto const& example : one_of_each()) {
        EXPECT_NO_THROW(example.decode(example.bytes));
        for (std::size_t size = 0; size < example.bytes.size(); ++size) {
            Bytes const cut(example.bytes.begin(), example.bytes.begin() + static_cast<std::ptrdiff_t>(size));
            EXPECT_THROW(example.decode(cut), FormatError) << size;
        }
        auto longer = example.bytes;
        longer.push_back(0);
        EXPECT_THROW(example.decode(longer), FormatError);
    }
}

TEST(UcxxControl, UnknownKindsAreRefused) {
    EXPECT_THROW(static_cast<void>(control_kind({})), FormatError);
    EXPECT_THROW(static_cast<void>(control_kind(Bytes{0})), FormatError);
    EXPECT_THROW(static_cast<void>(control_kind(Bytes{200})), FormatError);
    EXPECT_THROW(
        static_cast<void>(AssignMessage::decode(JoinMessage{1, {}}.encode(token_of(7)))), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::detail

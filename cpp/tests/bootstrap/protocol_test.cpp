#include <rapidsmpf/bootstrap/detail/protocol.hpp>

#include <gtest/gtest.h>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {
namespace {

Token some_token() {
    std::array<std::uint8_t, Token::size> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 9);
    }
    return Token{bytes};
}

// One message of every type, encoded.
std::vector<Bytes> one_of_each() {
    return {
        Hello{some_token(), Role::member, 1, 3, 4711, "host"}.encode(),
        Put{"key", Bytes{1, 2, 3}}.encode(),
        Get{7, "key", 1000}.encode(),
        Gather{8, Bytes{4}, 500}.encode(),
        Bye::encode(),
        Abort{"ValueError: x"}.encode(),
        Welcome{2, 10000}.encode(),
        Rejected{"no"}.encode(),
        Reply{9, std::vector<Bytes>{Bytes{1}, Bytes{}, Bytes{2, 3}}}.encode(),
        Failure{1, "host", 12, "killed"}.encode(),
        Left{2}.encode(),
        Begin{2, 5}.encode(),
        PassSignal{15}.encode(),
        Stop{std::chrono::milliseconds{2000}}.encode(),
        Finish{3}.encode(),
        RankEnded{4, 4711, "host", 137, "was killed"}.encode(),
        NodeFailed{127, "not found"}.encode(),
        Ping::encode(),
        Pong::encode(),
    };
}

void decode(Frame const& frame) {
    switch (frame.type) {
        case MessageType::hello:
            static_cast<void>(Hello::decode(frame.payload));
            return;
        case MessageType::put:
            static_cast<void>(Put::decode(frame.payload));
            return;
        case MessageType::get:
            static_cast<void>(Get::decode(frame.payload));
            return;
        case MessageType::gather:
            static_cast<void>(Gather::decode(frame.payload));
            return;
        case MessageType::bye:
            Bye::decode(frame.payload);
            return;
        case MessageType::abort:
            static_cast<void>(Abort::decode(frame.payload));
            return;
        case MessageType::welcome:
            static_cast<void>(Welcome::decode(frame.payload));
            return;
        case MessageType::rejected:
            static_cast<void>(Rejected::decode(frame.payload));
            return;
        case MessageType::reply:
            static_cast<void>(Reply::decode(frame.payload));
            return;
        case MessageType::failure:
            static_cast<void>(Failure::decode(frame.payload));
            return;
        case MessageType::left:
            static_cast<void>(Left::decode(frame.payload));
            return;
        case MessageType::begin:
            static_cast<void>(Begin::decode(frame.payload));
            return;
        case MessageType::pass_signal:
            static_cast<void>(PassSignal::decode(frame.payload));
            return;
        case MessageType::stop:
            static_cast<void>(Stop::decode(frame.payload));
            return;
        case MessageType::finish:
            static_cast<void>(Finish::decode(frame.payload));
            return;
        case MessageType::rank_ended:
            static_cast<void>(RankEnded::decode(frame.payload));
            return;
        case MessageType::ping:
            Ping::decode(frame.payload);
            return;
        case MessageType::pong:
            Pong::decode(frame.payload);
            return;
        case MessageType::node_failed:
            static_cast<void>(NodeFailed::decode(frame.payload));
            return;
    }
    throw FormatError{"unknown type"};
}

Frame only_frame(Bytes const& bytes) {
    FrameBuffer buffer{max_frame_size};
    buffer.append(bytes);
    auto frame = buffer.next();
    EXPECT_TRUE(frame);
    EXPECT_FALSE(buffer.next());
    return std::move(*frame);
}

TEST(Token, HexRoundTrip) {
    auto const token = some_token();
    EXPECT_EQ(token.hex().size(), 64U);
    EXPECT_TRUE(Token::from_hex(token.hex()).matches(token));
}

TEST(Token, RandomOnesDiffer) {
    EXPECT_FALSE(Token::random().matches(Token::random()));
}

TEST(Token, MalformedHexIsRefused) {
    EXPECT_THROW(static_cast<void>(Token::from_hex("")), FormatError);
    EXPECT_THROW(static_cast<void>(Token::from_hex(std::string(63, 'a'))), FormatError);
    EXPECT_THROW(static_cast<void>(Token::from_hex(std::string(64, 'g'))), FormatError);
}

TEST(Protocol, FieldsSurvive) {
    auto const hello = Hello::decode(only_frame(one_of_each()[0]).payload);
    EXPECT_TRUE(hello.token.matches(some_token()));
    EXPECT_EQ(hello.role, Role::member);
    EXPECT_EQ(hello.rank, 1);
    EXPECT_EQ(hello.nranks, 3);
    EXPECT_EQ(hello.pid, 4711);
    EXPECT_EQ(hello.host, "host");
    auto const get = Get::decode(only_frame(one_of_each()[2]).payload);
    EXPECT_EQ(get.request, 7U);
    EXPECT_EQ(get.key, "key");
    EXPECT_EQ(get.timeout_ms, 1000U);
    auto const reply = Reply::decode(only_frame(one_of_each()[8]).payload);
    EXPECT_EQ(reply.request, 9U);
    EXPECT_EQ(reply.status, Reply::Status::ok);
    EXPECT_EQ(reply.values, (std::vector<Bytes>{Bytes{1}, Bytes{}, Bytes{2, 3}}));
    auto const failure = Failure::decode(only_frame(one_of_each()[9]).payload);
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.pid, 12);
    EXPECT_EQ(failure.reason, "killed");
    auto const begin = Begin::decode(only_frame(one_of_each()[11]).payload);
    EXPECT_EQ(begin.first_rank, 2);
    EXPECT_EQ(begin.nranks, 5);
    auto const ended = RankEnded::decode(only_frame(one_of_each()[15]).payload);
    EXPECT_EQ(ended.rank, 4);
    EXPECT_EQ(ended.pid, 4711);
    EXPECT_EQ(ended.exit_code, 137);
    EXPECT_EQ(ended.how, "was killed");
}

TEST(Protocol, EveryCutIsAFormatErrorAndEveryLongerOneToo) {
    for (auto const& bytes : one_of_each()) {
        auto const whole = only_frame(bytes);
        EXPECT_NO_THROW(decode(whole));
        for (std::size_t size = 0; size < whole.payload.size(); ++size) {
            Frame cut{
                whole.type,
                Bytes(whole.payload.begin(), whole.payload.begin() + static_cast<std::ptrdiff_t>(size))};
            EXPECT_THROW(decode(cut), FormatError) << static_cast<int>(whole.type) << " cut to " << size;
        }
        auto longer = whole;
        longer.payload.push_back(0);
        EXPECT_THROW(decode(longer), FormatError) << static_cast<int>(whole.type);
    }
}

TEST(Protocol, FlippedBitsAreDecodedOrRefusedButNothingElse) {
    for (auto const& bytes : one_of_each()) {
        for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
            auto damaged = bytes;
            damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ (1U << (bit % 8)));
            FrameBuffer buffer{max_frame_size};
            buffer.append(damaged);
            try {
                while (auto const frame = buffer.next()) {
                    decode(*frame);
                }
            } catch (FormatError const&) {
                // As it should be.
            }
        }
    }
}

TEST(Protocol, LongTextsAreCutNotRefused) {
    auto const abort = Abort::decode(only_frame(Abort{std::string(100'000, 'x')}.encode()).payload);
    EXPECT_EQ(abort.reason.size(), max_reason_size);
    EXPECT_EQ(abort.culprit, Abort::myself);
    EXPECT_EQ(Abort::decode(only_frame(Abort{"x", 3}.encode()).payload).culprit, 3);
}

TEST(FrameBuffer, FramesComeOutWhateverTheCuts) {
    Bytes stream;
    for (auto const& bytes : one_of_each()) {
        stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    for (std::size_t step = 1; step < 40; ++step) {
        FrameBuffer buffer{max_frame_size};
        std::size_t frames = 0;
        for (std::size_t at = 0; at < stream.size(); at += step) {
            buffer.append(std::span{stream}.subspan(at, std::min(step, stream.size() - at)));
            while (auto const frame = buffer.next()) {
                EXPECT_NO_THROW(decode(*frame));
                ++frames;
            }
        }
        EXPECT_EQ(frames, one_of_each().size()) << "in steps of " << step;
    }
}

TEST(FrameBuffer, SizeOverTheLimitIsRefusedBeforeItsBytesCome) {
    FrameBuffer buffer{100};
    buffer.append(Bytes{101, 0, 0, 0});
    EXPECT_THROW(static_cast<void>(buffer.next()), FormatError);
}

TEST(FrameBuffer, FrameWithoutATypeIsRefused) {
    FrameBuffer buffer{100};
    buffer.append(Bytes{0, 0, 0, 0});
    EXPECT_THROW(static_cast<void>(buffer.next()), FormatError);
}

TEST(ListRanks, ReadsWell) {
    EXPECT_EQ(list_ranks({3}), "rank 3");
    EXPECT_EQ(list_ranks({1, 2}), "ranks 1 and 2");
    EXPECT_EQ(list_ranks({1, 2, 5}), "ranks 1, 2 and 5");
    std::vector<std::int32_t> many(12);
    EXPECT_EQ(list_ranks(many), "ranks 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 and 2 more");
}

}  // namespace
}  // namespace rapidsmpf::bootstrap

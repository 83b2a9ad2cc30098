// The byte stream of a connection to or from the coordinator: split into frames, each decoded by its type. What is taken says
// the same when it is sent again.
#include <chrono>
#include <optional>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/protocol.hpp>

#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

namespace {

using namespace bootstrap;

constexpr std::size_t largest_frame = 4096;

template <typename Message>
void decode(Frame const& frame) {
    Bytes again;
    if (!takes([&] { again = Message::decode(frame.payload).encode(); })) {
        return;
    }
    FrameBuffer buffer{max_frame_size};
    buffer.append(again);
    auto const same = buffer.next();
    require(
        same && same->type == frame.type && same->payload == frame.payload, "a message says the same again");
}

void decode(Frame const& frame) {
    switch (frame.type) {
        case MessageType::hello:
            return decode<Hello>(frame);
        case MessageType::put:
            return decode<Put>(frame);
        case MessageType::get:
            return decode<Get>(frame);
        case MessageType::gather:
            return decode<Gather>(frame);
        case MessageType::bye:
            static_cast<void>(takes([&] { Bye::decode(frame.payload); }));
            return;
        case MessageType::ping:
            static_cast<void>(takes([&] { Ping::decode(frame.payload); }));
            return;
        case MessageType::pong:
            static_cast<void>(takes([&] { Pong::decode(frame.payload); }));
            return;
        case MessageType::abort:
            return decode<Abort>(frame);
        case MessageType::rank_ended:
            return decode<RankEnded>(frame);
        case MessageType::node_failed:
            return decode<NodeFailed>(frame);
        case MessageType::welcome:
            return decode<Welcome>(frame);
        case MessageType::rejected:
            return decode<Rejected>(frame);
        case MessageType::reply:
            // Not byte for byte: an answer has a text or values, and a peer may send both.
            static_cast<void>(takes([&] { static_cast<void>(Reply::decode(frame.payload)); }));
            return;
        case MessageType::failure:
            return decode<Failure>(frame);
        case MessageType::left:
            return decode<Left>(frame);
        case MessageType::begin:
            return decode<Begin>(frame);
        case MessageType::pass_signal:
            return decode<PassSignal>(frame);
        case MessageType::stop:
            return decode<Stop>(frame);
        case MessageType::finish:
            return decode<Finish>(frame);
    }
}

void read_stream(Input& input) {
    FrameBuffer buffer{largest_frame};
    std::vector<std::int32_t> ranks;
    // In pieces, as a socket gives them.
    std::size_t const step = 1 + std::size_t{input.byte()};
    static_cast<void>(takes([&] {
        while (!input.empty()) {
            buffer.append(input.take(step));
            while (auto const frame = buffer.next()) {
                require(frame->payload.size() < largest_frame, "no frame is over the limit");
                ranks.push_back(static_cast<std::int32_t>(frame->payload.size()));
                decode(*frame);
            }
        }
    }));
    static_cast<void>(list_ranks(ranks));
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    switch (input.byte() % 2) {
        case 0:
            return read_stream(input);
        default: {
            std::optional<Token> token;
            auto const text = std::string{text_of(input.rest())};
            if (takes([&] { token = Token::from_hex(text); })) {
                require(token->hex() == text && token->matches(*token), "a token is its text");
            }
        }
    }
}

std::vector<Bytes> seeds() {
    using namespace std::chrono_literals;
    auto const token = Token::random();
    Bytes const value{1, 2, 3, 4, 5};
    std::vector<Bytes> const frames{
        Hello{token, Role::member, 1, 3, 4711, "node7.cluster"}.encode(),
        Hello{token, Role::node, 0, 8, 17, "node1"}.encode(),
        Welcome{2, 10'000}.encode(),
        Ping::encode(),
        Pong::encode(),
        Rejected{"this job has 3 ranks"}.encode(),
        Put{"ucxx/root", value}.encode(),
        Get{1, "ucxx/root", 120'000}.encode(),
        Gather{2, value, 60'000}.encode(),
        Reply{1, std::vector<Bytes>{value, {}, value}}.encode(),
        Reply{2, Reply::Status::timeout, "ranks 1 and 2 did not come"}.encode(),
        Bye::encode(),
        Abort{"out of memory"}.encode(),
        Abort{"it sent a malformed message", 2}.encode(),
        Failure{1, "node7.cluster", 4711, "killed by signal 9"}.encode(),
        Left{2}.encode(),
        Begin{4, 8}.encode(),
        PassSignal{15}.encode(),
        Stop{3s}.encode(),
        Finish{137}.encode(),
        RankEnded{3, 4711, "node7", 3, "exited with code 3"}.encode(),
        NodeFailed{127, "no such program"}.encode(),
    };
    std::vector<Bytes> all;
    Bytes together;
    for (auto const& frame : frames) {
        all.push_back(with_kind(0, with_kind(255, frame)));
        together.insert(together.end(), frame.begin(), frame.end());
    }
    all.push_back(with_kind(0, with_kind(6, together)));
    all.push_back(with_kind(1, token.hex()));
    return all;
}

}  // namespace rapidsmpf::fuzz

// The coordinator with several connections, some of which know the job's token: who may say what when, requests and their
// answers, ranks that go. Whatever comes, it goes on, and what it sends is well formed.
#include <array>
#include <chrono>
#include <optional>

#include <sys/socket.h>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>

#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

namespace {

using namespace bootstrap;
using namespace std::chrono_literals;

constexpr std::int32_t nranks = 3;
constexpr std::size_t most_steps = 64;
constexpr std::size_t most_connections = 6;

// The steps of an input, each with its arguments behind it.
enum class Step : std::uint8_t { connect, greet, send, frame, close, fail, rank_ended, process };
constexpr std::uint8_t steps = 8;

Token token() {
    std::array<std::uint8_t, Token::size> bytes{};
    bytes.fill(0x5a);
    return Token{bytes};
}

class Peer {
  public:
    explicit Peer(SocketAddress const& address) : socket_{connect_to(address, 10s)} {
        // Closes with a reset, so that many inputs leave no ports waiting.
        linger const at_once{1, 0};
        ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    void send(std::span<std::uint8_t const> bytes) const {
        [[maybe_unused]] auto const sent =
            ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    // Reads as a rank does: a malformed answer ends the program.
    void listen() {
        std::array<std::uint8_t, 4096> bytes{};
        for (;;) {
            auto const got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
            if (got <= 0) {
                break;
            }
            in_.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
        }
        while (auto const frame = in_.next()) {
            switch (frame->type) {
                case MessageType::welcome:
                    static_cast<void>(Welcome::decode(frame->payload));
                    break;
                case MessageType::rejected:
                    static_cast<void>(Rejected::decode(frame->payload));
                    break;
                case MessageType::reply:
                    static_cast<void>(Reply::decode(frame->payload));
                    break;
                case MessageType::failure:
                    static_cast<void>(Failure::decode(frame->payload));
                    break;
                case MessageType::left:
                    static_cast<void>(Left::decode(frame->payload));
                    break;
                case MessageType::ping:
                    Ping::decode(frame->payload);
                    break;
                default:
                    require(false, "the coordinator sends nothing else");
            }
        }
    }

  private:
    FileDescriptor socket_;
    FrameBuffer in_{max_frame_size};
};

Bytes framed(std::uint8_t type, std::span<std::uint8_t const> payload) {
    auto const size = static_cast<std::uint32_t>(payload.size() + 1);
    Bytes bytes{static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(size >> 8), 0, 0, type};
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
}

CoordinatorServer::Events events_of_rrun() {
    CoordinatorServer::Events events;
    events.lost = [](std::int32_t) {};
    events.failed = [](Failure const& failure) {
        require(failure.reason.size() <= 2 * max_reason_size, "a reason is short");
    };
    events.node_joined = [](CoordinatorServer::NodeId, Hello const&) {};
    events.node_said = [](CoordinatorServer::NodeId, Frame const& frame) {
        if (frame.type == MessageType::rank_ended) {
            static_cast<void>(RankEnded::decode(frame.payload));
        } else {
            static_cast<void>(NodeFailed::decode(frame.payload));
        }
    };
    events.node_lost = [](CoordinatorServer::NodeId) {};
    events.log = [](std::string const&) {};
    return events;
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    auto const form = input.byte();
    CoordinatorServer::Settings settings;
    settings.hello_timeout = (form & 1) != 0 ? 0ms : 10s;
    settings.disconnect_grace = (form & 2) != 0 ? 0ms : 10s;
    // Then each step asks for an answer.
    settings.silence_limit = (form & 8) != 0 ? std::optional{0ms} : std::nullopt;
    auto events = events_of_rrun();
    if ((form & 4) != 0) {
        events.node_joined = nullptr;
    }
    CoordinatorServer server{nranks, token(), events, settings};
    std::array<std::optional<Peer>, most_connections> peers;
    for (std::size_t step = 0; step < most_steps && !input.empty(); ++step) {
        auto const kind = static_cast<Step>(input.byte() % steps);
        auto& peer = peers[input.byte() % most_connections];
        if (!peer && kind < Step::close) {
            peer.emplace(server.address());
            server.process();
        }
        switch (kind) {
            case Step::connect:
                break;
            case Step::greet: {
                auto const role = static_cast<Role>(input.byte() % 3);
                auto const rank = static_cast<std::int32_t>(static_cast<std::int8_t>(input.byte()));
                peer->send(Hello{token(), role, rank, nranks, 17, "here"}.encode());
                break;
            }
            case Step::send:
                peer->send(input.take(input.byte()));
                break;
            case Step::frame: {
                auto const type = input.byte();
                peer->send(framed(type, input.take(input.byte())));
                break;
            }
            case Step::close:
                peer.reset();
                break;
            case Step::fail:
                server.fail(
                    Failure{input.byte() % nranks, "here", 17, "killed by signal 9"},
                    static_cast<CoordinatorServer::Tell>(input.byte() % 2));
                break;
            case Step::rank_ended:
                server.rank_ended(Failure{input.byte() % nranks, "here", 17, "ended without a goodbye"});
                break;
            case Step::process:
                static_cast<void>(server.timeout());
                break;
        }
        server.process();
        for (auto& other : peers) {
            if (other) {
                other->listen();
            }
        }
    }
}

std::vector<Bytes> seeds() {
    auto const greet = [](std::uint8_t peer, std::uint8_t role, std::uint8_t rank) {
        return Bytes{static_cast<std::uint8_t>(Step::greet), peer, role, rank};
    };
    // A whole message, without its size in front.
    auto const say = [](std::uint8_t peer, Bytes const& message) {
        Bytes step{
            static_cast<std::uint8_t>(Step::frame), peer, message.at(4),
            static_cast<std::uint8_t>(message.size() - 5)};
        step.insert(step.end(), message.begin() + 5, message.end());
        return step;
    };
    auto const send = [](std::uint8_t peer, Bytes const& message) {
        Bytes step{static_cast<std::uint8_t>(Step::send), peer, static_cast<std::uint8_t>(message.size())};
        step.insert(step.end(), message.begin(), message.end());
        return step;
    };
    auto const act = [](Step step, std::uint8_t peer, std::uint8_t argument) {
        return Bytes{static_cast<std::uint8_t>(step), peer, argument};
    };
    auto const job = [](std::uint8_t form, std::initializer_list<Bytes> steps_of_job) {
        Bytes input{form};
        for (auto const& step : steps_of_job) {
            input.insert(input.end(), step.begin(), step.end());
        }
        return input;
    };
    Bytes const value{1, 2, 3};
    auto const all_greet = job(0, {greet(0, 0, 0), greet(1, 0, 1), greet(2, 0, 2)});
    auto const then = [&](std::initializer_list<Bytes> more) {
        auto input = all_greet;
        for (auto const& step : more) {
            input.insert(input.end(), step.begin(), step.end());
        }
        return input;
    };
    Bytes const look{static_cast<std::uint8_t>(Step::process), 0};
    Bytes const close_1{static_cast<std::uint8_t>(Step::close), 1};
    std::vector<Bytes> all{
        then(
            {say(0, Put{"root", value}.encode()), say(1, Get{1, "root", 60'000}.encode()),
             say(2, Get{1, "late", 60'000}.encode()), look, say(0, Put{"late", value}.encode())}),
        then(
            {say(0, Gather{1, value, 60'000}.encode()), look, say(1, Gather{1, value, 60'000}.encode()),
             say(2, Gather{1, value, 60'000}.encode())}),
        then({say(0, Gather{1, value, 0}.encode()), look, say(2, Get{3, "nothing", 0}.encode()), look}),
        then(
            {say(0, Gather{1, value, 60'000}.encode()), say(1, Bye::encode()), say(0, Bye::encode()),
             say(2, Bye::encode()), greet(3, 0, 0)}),
        then({say(1, Bye::encode()), say(0, Gather{1, value, 60'000}.encode())}),
        then({close_1, look, act(Step::fail, 0, 1), greet(4, 0, 1)}),
        then({say(1, Abort{"out of memory"}.encode())}),
        then({say(1, Abort{"it broke the protocol", 2}.encode()), say(2, Abort{"no", 9}.encode())}),
        then({act(Step::rank_ended, 0, 1), act(Step::rank_ended, 0, 2)}),
        job(0, {greet(0, 0, 0), say(0, Bye::encode()), act(Step::rank_ended, 0, 1), greet(1, 0, 2)}),
        job(0, {greet(0, 0, 0), act(Step::rank_ended, 1, 0), close_1}),
        job(0, {greet(0, 0, 7), greet(1, 1, 0), say(1, Abort{"mpirun says so"}.encode())}),
        job(0, {greet(1, 1, 0), say(1, Put{"root", value}.encode())}),
        job(0, {greet(0, 2, 1), say(0, RankEnded{1, 17, "here", 3, "exited with code 3"}.encode()),
                say(0, NodeFailed{127, "no such program"}.encode()), close_1}),
        job(4, {greet(0, 2, 1)}),
        job(8, {greet(0, 0, 0), look, say(0, Pong::encode()), look, look, look, look, look, look, look}),
        job(1, {Bytes{static_cast<std::uint8_t>(Step::connect), 0}, look}),
        job(0, {send(0, Hello{token(), Role::member, 1, nranks, 17, "here"}.encode()),
                send(1, Hello{Token{{}}, Role::member, 1, nranks, 17, "here"}.encode()),
                send(2, Bytes{'G', 'E', 'T', ' ', '/', '\r', '\n'})}),
    };
    auto const count = all.size();
    for (std::size_t i = 0; i < count; ++i) {
        auto with_no_patience = all[i];
        with_no_patience[0] = static_cast<std::uint8_t>(with_no_patience[0] | 2);
        all.push_back(std::move(with_no_patience));
    }
    return all;
}

}  // namespace rapidsmpf::fuzz

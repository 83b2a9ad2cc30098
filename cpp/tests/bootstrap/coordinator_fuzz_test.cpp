// Strangers at the coordinator's port: 10,000 seeded inputs, from random bytes to greetings that are almost right. The
// ranks that are there notice nothing.
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>

namespace rapidsmpf::bootstrap {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 60s;

// Closes with a reset, so that thousands of them leave no ports waiting.
class Stranger {
  public:
    explicit Stranger(SocketAddress const& address) : socket_{connect_to(address, patience)} {
        linger const at_once{1, 0};
        ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    void send(std::span<std::uint8_t const> bytes) const {
        // What the coordinator has closed takes nothing more; neither does a full buffer.
        [[maybe_unused]] auto const sent =
            ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    [[nodiscard]] int fd() const { return socket_.get(); }

  private:
    FileDescriptor socket_;
};

// Sends its bytes one at a time.
struct SlowSender {
    Stranger stranger;
    Bytes bytes;
    std::size_t sent{0};
};

class Fuzzer {
  public:
    Fuzzer(SocketAddress const& address, Token token, std::uint64_t seed)
        : address_{address}, token_{token}, random_{seed} {}

    // One input, of every kind in turn.
    void input(CoordinatorServer& server, std::uint64_t number) {
        constexpr std::uint64_t kinds = 10;
        auto const kind = number % kinds;
        auto const bytes = make(kind);
        if (kind == 8) {
            slow_.push_back(SlowSender{Stranger{address_}, bytes, 0});
        } else {
            Stranger stranger{address_};
            stranger.send(bytes);
            server.process();
            if (kind == 9) {
                silent_.push_back(std::move(stranger));  // stays, and says no more
            }
        }
        for (auto& sender : slow_) {
            if (sender.sent < sender.bytes.size()) {
                sender.stranger.send(std::span{sender.bytes}.subspan(sender.sent++, 1));
            }
        }
        server.process();
        constexpr std::size_t most = 40;
        while (slow_.size() > most) {
            slow_.pop_front();
        }
        while (silent_.size() > 2 * most) {
            silent_.pop_front();
        }
    }

  private:
    std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    Bytes noise(std::size_t size) {
        Bytes bytes(size);
        for (auto& byte : bytes) {
            byte = static_cast<std::uint8_t>(random_());
        }
        return bytes;
    }
    Bytes with_noise(Bytes bytes, std::size_t size) {
        auto const more = noise(size);
        bytes.insert(bytes.end(), more.begin(), more.end());
        return bytes;
    }
    // A greeting that is right but for its rank; never a rank of the job.
    [[nodiscard]] Bytes greeting(Token const& token, Role role, std::int32_t rank) const {
        return Hello{token, role, rank, 2, 4711, "somewhere"}.encode();
    }
    Bytes make(std::uint64_t kind) {
        auto const wrong = Token::from_hex(std::string(64, 'a'));
        switch (kind) {
            case 0:
                return noise(below(2000));
            case 1:
                return with_noise(greeting(wrong, Role::member, 0), below(200));
            case 2: {
                auto bytes = greeting(token_, Role::member, 0);
                bytes.resize(below(bytes.size()));
                return bytes;
            }
            case 3: {
                // Damaged where the size, the magic number, the version and the token are.
                auto bytes = greeting(token_, Role::member, 0);
                auto const at = below(11 + Token::size);
                bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1 + below(255)));
                return bytes;
            }
            case 4:
                return with_noise(
                    greeting(token_, Role::member, static_cast<std::int32_t>(2 + below(1000))), below(500));
            case 5:
                return with_noise(greeting(token_, Role::reporter, 0), 1 + below(500));
            case 6:
                return with_noise(
                    greeting(token_, Role::node, static_cast<std::int32_t>(below(4))), below(500));
            case 7: {
                std::string const text{"GET /index.html HTTP/1.1\r\nHost: rank\r\n\r\n"};
                return Bytes(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(below(text.size())));
            }
            case 8:
                return with_noise(greeting(wrong, Role::member, 1), 20);
            default:
                return noise(below(4));
        }
    }

    SocketAddress address_;
    Token token_;
    std::mt19937_64 random_;
    std::deque<SlowSender> slow_;
    std::deque<Stranger> silent_;
};

// A rank's connection, driven by the test's one thread.
class Member {
  public:
    Member(CoordinatorServer& server, Token const& token, std::int32_t rank)
        : server_{server}, socket_{connect_to(server.address(), patience)} {
        send(Hello{token, Role::member, rank, 2, 4711, "here"}.encode());
        EXPECT_EQ(next().type, MessageType::welcome);
    }
    void send(Bytes const& bytes) {
        EXPECT_EQ(
            ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
    }
    // The next frame for it; throws when none comes.
    [[nodiscard]] Frame next() {
        auto const deadline = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < deadline) {
            if (auto frame = in_.next()) {
                if (frame->type == MessageType::ping) {
                    continue;  // the coordinator asks every 10 s; it waits for longer than a test takes
                }
                return std::move(*frame);
            }
            server_.process();
            std::array waiting{pollfd{socket_.get(), POLLIN, 0}, pollfd{server_.fd(), POLLIN, 0}};
            ::poll(waiting.data(), waiting.size(), 1000);
            if (waiting[0].revents != 0) {
                std::array<std::uint8_t, 4096> bytes{};
                auto const got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
                if (got <= 0) {
                    throw std::runtime_error{"the coordinator closed a rank's connection"};
                }
                in_.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
            }
        }
        throw std::runtime_error{"the coordinator does not answer"};
    }

  private:
    CoordinatorServer& server_;
    FileDescriptor socket_;
    FrameBuffer in_{max_frame_size};
};

TEST(CoordinatorFuzz, StrangersDisturbNobody) {
    auto const token = Token::random();
    std::vector<std::string> log;
    CoordinatorServer::Events events;
    events.log = [&](std::string const& line) { log.push_back(line); };
    std::uint64_t joined = 0;
    std::uint64_t lost = 0;
    events.node_joined = [&](CoordinatorServer::NodeId /*id*/, Hello const& /*hello*/) { ++joined; };
    events.node_said = [](CoordinatorServer::NodeId /*id*/, Frame const& frame) {
        static_cast<void>(RankEnded::decode(frame.payload));
    };
    events.node_lost = [&](CoordinatorServer::NodeId /*id*/) { ++lost; };
    CoordinatorServer server{2, token, events};
    Member first{server, token, 0};
    Member second{server, token, 1};

    constexpr std::uint64_t inputs = 10'000;
    Fuzzer fuzzer{server.address(), token, 20'26};
    for (std::uint64_t number = 0; number < inputs; ++number) {
        fuzzer.input(server, number);
    }

    first.send(Gather{1, Bytes{1}, 60'000}.encode());
    second.send(Gather{2, Bytes{2}, 60'000}.encode());
    for (auto* const member : {&first, &second}) {
        auto const frame = member->next();
        ASSERT_EQ(frame.type, MessageType::reply);
        EXPECT_EQ(Reply::decode(frame.payload).values, (std::vector<Bytes>{Bytes{1}, Bytes{2}}));
    }
    EXPECT_FALSE(server.failure()) << server.failure()->reason;
    EXPECT_GE(log.size(), 16U);
    EXPECT_LE(log.size(), 64U) << "a flood at the port is not one of messages";
    EXPECT_GT(joined, 0U);
    EXPECT_LE(lost, joined);
}

}  // namespace
}  // namespace rapidsmpf::bootstrap

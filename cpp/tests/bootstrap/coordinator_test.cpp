// The coordinator's server and clients in one process.
#include "bootstrap/coordinator.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/detail/token.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {
namespace {

using namespace std::chrono_literals;
constexpr auto patience = 30s;
constexpr auto moment = 20ms;

// A server on a thread of its own, as rrun has it in its loop.
class ServerThread {
  public:
    explicit ServerThread(std::int32_t nranks, CoordinatorServer::Settings settings = {})
        : nranks_{nranks}, server_{nranks, token_, events(), settings}, thread_{[this] { run(); }} {}
    ~ServerThread() {
        call([this] { stop_ = true; });
        thread_.join();
    }

    // On the server's thread; waits until it is done.
    void call(std::function<void()> what) {
        auto const done = std::make_shared<std::promise<void>>();
        {
            std::lock_guard const lock{mutex_};
            calls_.push_back([&what, done] {
                what();
                done->set_value();
            });
        }
        wake_.signal();
        done->get_future().get();
    }
    [[nodiscard]] Membership member(Rank rank) const { return {server_.address(), token_, rank, nranks_}; }
    [[nodiscard]] std::unique_ptr<Coordinator> join(Rank rank) const {
        return std::make_unique<Coordinator>(member(rank), patience);
    }
    [[nodiscard]] CoordinatorServer& server() { return server_; }
    void wait_for_log(std::string const& part) {
        std::unique_lock lock{mutex_};
        ASSERT_TRUE(logged_.wait_for(lock, patience, [&] { return log_.find(part) != std::string::npos; }))
            << log_;
    }

  private:
    CoordinatorServer::Events events() {
        CoordinatorServer::Events events;
        events.log = [this](std::string const& line) {
            std::lock_guard const lock{mutex_};
            log_ += line + "\n";
            logged_.notify_all();
        };
        return events;
    }
    void run() {
        while (!stop_) {
            auto const timeout = server_.timeout();
            std::array waiting{pollfd{server_.fd(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
            ::poll(waiting.data(), waiting.size(), timeout ? static_cast<int>(timeout->count()) : -1);
            wake_.drain();
            server_.process();
            std::vector<std::function<void()>> calls;
            {
                std::lock_guard const lock{mutex_};
                calls.swap(calls_);
            }
            for (auto const& call : calls) {
                call();
            }
        }
    }

    std::int32_t nranks_;
    Token token_{Token::random()};
    std::mutex mutex_;
    std::condition_variable logged_;
    std::string log_;
    std::vector<std::function<void()>> calls_;
    EventDescriptor wake_;
    bool stop_{false};
    CoordinatorServer server_;
    std::thread thread_;
};

// What a Liveness reported.
class Ears {
  public:
    [[nodiscard]] Liveness::Events events() {
        return Liveness::Events{
            [this](RankFailure const& failure) {
                std::lock_guard const lock{mutex_};
                failure_ = failure;
                changed_.notify_all();
            },
            [this](Rank rank) {
                std::lock_guard const lock{mutex_};
                left_.push_back(rank);
                changed_.notify_all();
            }};
    }
    [[nodiscard]] RankFailure failure() {
        std::unique_lock lock{mutex_};
        if (!changed_.wait_for(lock, patience, [&] { return failure_.has_value(); })) {
            throw std::runtime_error{"no failure was reported"};
        }
        return *failure_;
    }
    [[nodiscard]] std::vector<Rank> left(std::size_t count) {
        std::unique_lock lock{mutex_};
        changed_.wait_for(lock, patience, [&] { return left_.size() >= count; });
        return left_;
    }
    [[nodiscard]] bool heard_failure() {
        std::lock_guard const lock{mutex_};
        return failure_.has_value();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<RankFailure> failure_;
    std::vector<Rank> left_;
};

// Three ranks, of which the first two listen.
struct ThreeRanks {
    ThreeRanks() {
        a->start(ears0->events());
        b->start(ears1->events());
    }
    ServerThread server{3};
    std::shared_ptr<Ears> ears0{std::make_shared<Ears>()};
    std::shared_ptr<Ears> ears1{std::make_shared<Ears>()};
    std::unique_ptr<Coordinator> a{server.join(0)};
    std::unique_ptr<Coordinator> b{server.join(1)};
    std::unique_ptr<Coordinator> c{server.join(2)};
};

Bytes bytes_of(std::string const& text) {
    return Bytes(text.begin(), text.end());
}

// A connection below the client: greets, and can end as a process does that dies.
FileDescriptor raw_member(Membership const& member) {
    auto socket = connect_to(member.address, patience);
    auto const hello = Hello{member.token, Role::member, member.rank, member.nranks, 4711, "there"}.encode();
    EXPECT_EQ(
        ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
    // Welcome has come when this returns.
    std::array<std::uint8_t, 256> answer{};
    EXPECT_GT(::recv(socket.get(), answer.data(), answer.size(), 0), 0);
    return socket;
}

bool reads_end(FileDescriptor const& socket) {
    std::array<std::uint8_t, 256> bytes{};
    pollfd waiting{socket.get(), POLLIN, 0};
    while (::poll(&waiting, 1, 30'000) == 1) {
        if (::recv(socket.get(), bytes.data(), bytes.size(), 0) <= 0) {
            return true;
        }
    }
    return false;
}

TEST(Coordinator, ValueIsFoundBeforeAndAfterItIsPut) {
    ServerThread server{2};
    auto const a = server.join(0);
    auto const b = server.join(1);
    auto early = std::async(std::launch::async, [&] { return b->get("key", patience); });
    a->put("key", bytes_of("value"));
    EXPECT_EQ(early.get(), bytes_of("value"));
    EXPECT_EQ(b->get("key", patience), bytes_of("value"));
    EXPECT_EQ(a->get("key", patience), bytes_of("value"));
}

TEST(Coordinator, MissingValueIsATimeoutThatNamesIt) {
    ServerThread server{1};
    auto const a = server.join(0);
    try {
        static_cast<void>(a->get("nobody's", moment));
        FAIL();
    } catch (TimeoutError const& error) {
        EXPECT_NE(std::string{error.what()}.find("nobody's"), std::string::npos) << error.what();
    }
    // The connection works on.
    a->put("nobody's", bytes_of("mine"));
    EXPECT_EQ(a->get("nobody's", patience), bytes_of("mine"));
}

TEST(Coordinator, GatherGivesEveryonesValueByRank) {
    ServerThread server{3};
    std::vector<std::future<std::vector<Bytes>>> results;
    std::vector<std::unique_ptr<Coordinator>> clients;
    for (Rank rank = 0; rank < 3; ++rank) {
        clients.push_back(server.join(2 - rank));  // the order of joining does not matter
    }
    for (int round = 0; round < 20; ++round) {
        results.clear();
        for (auto const& client : clients) {
            results.push_back(std::async(std::launch::async, [&client, round] {
                return client->gather(
                    Bytes(static_cast<std::size_t>(round * 1000), static_cast<std::uint8_t>(client->rank())),
                    patience);
            }));
        }
        for (auto& result : results) {
            auto const values = result.get();
            ASSERT_EQ(values.size(), 3U);
            for (std::size_t rank = 0; rank < 3; ++rank) {
                EXPECT_EQ(
                    values[rank],
                    Bytes(static_cast<std::size_t>(round * 1000), static_cast<std::uint8_t>(rank)));
            }
        }
    }
}

TEST(Coordinator, LargeValuesPass) {
    ServerThread server{2};
    auto const a = server.join(0);
    auto const b = server.join(1);
    Bytes const large(max_value_size, 7);
    a->put("large", large);
    EXPECT_EQ(b->get("large", patience), large);
    EXPECT_THROW(a->put("larger", Bytes(max_value_size + 1)), std::invalid_argument);
}

TEST(Coordinator, TimeoutOfGatherNamesTheMissingRanks) {
    ServerThread server{4};
    auto const a = server.join(0);
    auto const c = server.join(2);
    auto other = std::async(std::launch::async, [&] { EXPECT_THROW(c->barrier(moment), TimeoutError); });
    other.get();
    try {
        a->barrier(moment);
        FAIL();
    } catch (TimeoutError const& error) {
        EXPECT_NE(std::string{error.what()}.find("ranks 1 and 3 did not come"), std::string::npos)
            << error.what();
    }
}

TEST(Coordinator, SessionsDoNotMix) {
    ServerThread server{2};
    auto const a0 = server.join(0);
    auto const a1 = server.join(0);
    auto const b0 = server.join(1);
    auto const b1 = server.join(1);
    a0->put("key", bytes_of("first"));
    a1->put("key", bytes_of("second"));
    EXPECT_EQ(b0->get("key", patience), bytes_of("first"));
    EXPECT_EQ(b1->get("key", patience), bytes_of("second"));
    // A barrier of one session does not wait for another's.
    auto waiting = std::async(std::launch::async, [&] { b1->barrier(patience); });
    a1->barrier(patience);
    waiting.get();
}

TEST(Coordinator, AbortReachesTheOthersWithItsReason) {
    ThreeRanks const ranks;
    auto waiting =
        std::async(std::launch::async, [&] { EXPECT_THROW(ranks.b->barrier(patience), RankFailedError); });
    ranks.c->abort("ValueError: enough");
    auto const failure = ranks.ears0->failure();
    EXPECT_EQ(failure.rank, 2);
    EXPECT_EQ(failure.reason, "ValueError: enough");
    EXPECT_EQ(failure.pid, ::getpid());
    EXPECT_EQ(ranks.ears1->failure().rank, 2);
    waiting.get();
    EXPECT_THROW(static_cast<void>(ranks.a->get("key", patience)), RankFailedError);
}

TEST(Coordinator, ConvictionReachesAllRanksTheCulpritToo) {
    ThreeRanks const ranks;
    ranks.c->report_protocol_violation(0, "it sent nonsense");
    ranks.c->abort("of no consequence");
    for (auto const& ears : {ranks.ears0, ranks.ears1}) {
        auto const failure = ears->failure();
        EXPECT_EQ(failure.rank, 0);
        EXPECT_EQ(failure.reason, "it sent nonsense");
        EXPECT_EQ(failure.pid, ::getpid());
    }
}

TEST(Coordinator, ConvictionOfNobodyIsNotUnderstood) {
    CoordinatorServer::Settings settings;
    settings.disconnect_grace = 1ms;
    ServerThread server{2, settings};
    Ears ears;
    auto const a = server.join(0);
    auto const b = server.join(1);
    a->start(ears.events());
    b->report_protocol_violation(7, "it sent nonsense");
    EXPECT_EQ(ears.failure().rank, 1);
}

TEST(Coordinator, FailureBeforeStartIsReportedAtStart) {
    ServerThread server{2};
    auto const a = server.join(0);
    auto const b = server.join(1);
    b->abort("early");
    EXPECT_THROW(a->barrier(patience), RankFailedError);  // it is known now
    Ears ears;
    a->start(ears.events());
    EXPECT_EQ(ears.failure().reason, "early");
}

TEST(Coordinator, ReportOfAnAbortNeedsNoMembership) {
    ServerThread server{2};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    Coordinator::report_abort(server.member(1), "KeyError: 'x'", patience);
    EXPECT_EQ(ears.failure().reason, "KeyError: 'x'");
    EXPECT_EQ(ears.failure().rank, 1);
}

TEST(Coordinator, RankThatEndsBecauseOfAnotherNamesThat) {
    ServerThread server{3};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    auto const culprit = raw_member(server.member(1));
    Coordinator::report_abort(server.member(2), "KeyError: 'x'", patience, Rank{1});
    auto const failure = ears.failure();
    EXPECT_EQ(failure.reason, "KeyError: 'x'");
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.host, "there");
    EXPECT_EQ(failure.pid, 4711);
}

TEST(Coordinator, LateComerHearsOfTheFailure) {
    ServerThread server{2};
    Coordinator::report_abort(server.member(1), "gone", patience);
    auto const a = server.join(0);
    EXPECT_THROW(a->barrier(patience), RankFailedError);
}

TEST(Coordinator, ConnectionThatEndsWithoutByeIsAFailureOfItsRank) {
    CoordinatorServer::Settings settings;
    settings.disconnect_grace = 1ms;
    ServerThread server{2, settings};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    raw_member(server.member(1)).reset();
    auto const failure = ears.failure();
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.host, "there");
    EXPECT_EQ(failure.pid, 4711);
    EXPECT_NE(failure.reason.find("without a goodbye"), std::string::npos) << failure.reason;
}

TEST(Coordinator, OwnerMayKnowBetterWhyARankIsGone) {
    CoordinatorServer::Settings settings;
    settings.disconnect_grace = 1h;
    ServerThread server{2, settings};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    raw_member(server.member(1)).reset();
    server.call([&] { server.server().fail(Failure{1, "here", 12, "was killed by SIGKILL"}); });
    EXPECT_EQ(ears.failure().reason, "was killed by SIGKILL");
}

TEST(Coordinator, GoodbyeIsNoFailure) {
    CoordinatorServer::Settings settings;
    settings.disconnect_grace = 1ms;
    ServerThread server{2, settings};
    Ears ears;
    auto a = server.join(0);
    a->start(ears.events());
    auto b = server.join(1);
    b.reset();
    EXPECT_EQ(ears.left(1), std::vector<Rank>{1});
    server.call([&] {
        server.server().rank_ended(Failure{1, "here", 12, "ended"});
        EXPECT_FALSE(server.server().failure());
    });
    // But a barrier can't finish any more.
    EXPECT_THROW(a->barrier(patience), std::runtime_error);
    EXPECT_FALSE(ears.heard_failure());
}

TEST(Coordinator, RankThatEndsWithoutGoodbyeFails) {
    ServerThread server{2};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    auto const socket = raw_member(server.member(1));
    server.call([&] { server.server().rank_ended(Failure{1, "here", 12, "ended too early"}); });
    EXPECT_EQ(ears.failure().reason, "ended too early");
}

TEST(Coordinator, RankThatEndsBeforeItJoinsFails) {
    ServerThread server{2};
    // No rank has begun anything: fine.
    server.call([&] {
        server.server().rank_ended(Failure{1, "here", 12, "ended"});
        EXPECT_FALSE(server.server().failure());
    });
    auto const a = server.join(0);
    try {
        a->barrier(patience);
        FAIL();
    } catch (RankFailedError const& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_NE(error.reason().find("before it joined"), std::string::npos) << error.reason();
    }
}

TEST(Coordinator, EndOfTheCoordinatorIsAFailure) {
    auto server = std::make_unique<ServerThread>(2);
    Ears ears;
    auto const a = server->join(0);
    a->start(ears.events());
    server.reset();
    EXPECT_NE(ears.failure().reason.find("coordinator (rrun) closed the connection"), std::string::npos);
}

TEST(Coordinator, NoEventIsReportedAfterStop) {
    ServerThread server{2};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    a->stop();
    Coordinator::report_abort(server.member(1), "late", patience);
    EXPECT_THROW(a->barrier(patience), RankFailedError);
    EXPECT_FALSE(ears.heard_failure());
}

TEST(Coordinator, EventMayDestroyTheClient) {
    ServerThread server{2};
    auto a = server.join(0);
    std::promise<void> destroyed;
    a->start(
        Liveness::Events{
            [&](RankFailure const&) {
                a.reset();
                destroyed.set_value();
            },
            [](Rank) {}});
    Coordinator::report_abort(server.member(1), "now", patience);
    destroyed.get_future().get();
    EXPECT_FALSE(a);
}

// The event comes on the thread that calls start(), which must not touch what the event has destroyed.
TEST(Coordinator, EventAtStartMayDestroyTheClient) {
    ServerThread server{2};
    auto a = server.join(0);
    auto const b = server.join(1);
    b->abort("a reason");
    EXPECT_THROW(static_cast<void>(a->get("a key", patience)), RankFailedError);  // then it knows
    bool heard = false;
    a->start(
        Liveness::Events{
            [&](RankFailure const&) {
                heard = true;
                a.reset();
            },
            [](Rank) {}});
    EXPECT_TRUE(heard);
    EXPECT_EQ(a, nullptr);
}

TEST(CoordinatorServer, WrongTokenIsClosedWithoutAWord) {
    ServerThread server{2};
    auto member = server.member(0);
    member.token = Token::random();
    EXPECT_THROW(Coordinator(member, patience), std::runtime_error);
    server.wait_for_log("wrong token");
    // Everyone else goes on.
    auto const a = server.join(0);
    auto const b = server.join(1);
    auto waiting = std::async(std::launch::async, [&] { b->barrier(patience); });
    a->barrier(patience);
    waiting.get();
}

TEST(CoordinatorServer, RankOutOfRangeIsToldWhy) {
    ServerThread server{2};
    auto member = server.member(0);
    member.rank = 2;
    try {
        Coordinator const refused{member, patience};
        FAIL();
    } catch (std::runtime_error const& error) {
        EXPECT_NE(std::string{error.what()}.find("this job has 2 ranks"), std::string::npos) << error.what();
    }
}

TEST(CoordinatorServer, GarbageIsClosedAndLogged) {
    ServerThread server{2};
    for (std::string const garbage :
         {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x05\x00\x00\x00\x01hello", "\x01\x00\x00\x00\x05"}) {
        // Embedded zeros end the literals above: so much is enough of each.
        auto const text = garbage + std::string(8, '\0');
        auto const socket = connect_to(server.member(0).address, patience);
        ASSERT_GT(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
        EXPECT_TRUE(reads_end(socket)) << garbage;
        server.wait_for_log("closed a connection that is not a rank's");
    }
    auto const a = server.join(0);
    a->put("key", bytes_of("value"));
    EXPECT_EQ(a->get("key", patience), bytes_of("value"));
}

TEST(CoordinatorServer, MemberThatSendsGarbageFails) {
    CoordinatorServer::Settings settings;
    settings.disconnect_grace = 1ms;
    ServerThread server{2, settings};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    auto const socket = raw_member(server.member(1));
    Bytes const garbage{3, 0, 0, 0, 99, 1, 2};
    ASSERT_GT(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(ears.failure().rank, 1);
}

TEST(CoordinatorServer, SilentConnectionIsClosed) {
    CoordinatorServer::Settings settings;
    settings.hello_timeout = moment;
    ServerThread server{1, settings};
    auto const socket = connect_to(server.member(0).address, patience);
    EXPECT_TRUE(reads_end(socket));
    server.wait_for_log("no greeting");
}

// Rank 1 is connected and says nothing more, as a process that is stopped; rank 0 answers.
TEST(CoordinatorServer, ARankThatDoesNotAnswerIsNamed) {
    CoordinatorServer::Settings settings;
    settings.silence_limit = 300ms;
    ServerThread server{2, settings};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    auto const socket = raw_member(server.member(1));
    auto const failure = ears.failure();
    EXPECT_EQ(failure.rank, 1);
    EXPECT_EQ(failure.pid, 4711);
    EXPECT_NE(failure.reason.find("has not answered"), std::string::npos) << failure.reason;
}

TEST(CoordinatorServer, ACoordinatorThatIsSilentIsNamed) {
    CoordinatorServer::Settings settings;
    settings.silence_limit = 60ms;
    ServerThread server{1, settings};
    Ears ears;
    auto const a = server.join(0);
    a->start(ears.events());
    std::optional<RankFailure> failure;
    server.call([&] { failure = ears.failure(); });  // meanwhile it does nothing else
    EXPECT_EQ(failure->rank, -1);
    EXPECT_TRUE(failure->reason.starts_with(silent_coordinator)) << failure->reason;
}

TEST(CoordinatorServer, CrowdOfStrangersKeepsNobodyOut) {
    ServerThread server{1};
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < 200; ++i) {
        strangers.push_back(connect_to(server.member(0).address, patience));
    }
    auto const a = server.join(0);
    a->barrier(patience);
    EXPECT_TRUE(reads_end(strangers.front()));
}

TEST(SocketAddress, Parsing) {
    EXPECT_EQ(SocketAddress::parse("127.0.0.1:4711").port, 4711);
    for (auto const* const wrong :
         {"", "127.0.0.1", ":1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:0", "nowhere:1",
          "127.0.0.1:1x"}) {
        EXPECT_THROW(static_cast<void>(SocketAddress::parse(wrong)), std::invalid_argument) << wrong;
    }
}

}  // namespace
}  // namespace rapidsmpf::bootstrap

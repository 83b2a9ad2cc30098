// The coordinator: where ranks exchange addresses, wait for each other, and hear of each other's end.
//
// It has no thread of its own: its owner (rrun) polls fd(), at most for timeout(), and calls process().
// All methods are for that one thread. A connection that does not begin with a valid greeting and the job's
// token within a few seconds is closed and logged.
//
// A rank may open several connections, one per communicator. The n-th of each rank form the n-th session, with
// keys and gathers of its own. A connection that ends without Bye means that its rank failed: the owner, who may
// know why, is asked first (Events::lost) and has disconnect_grace to call fail(); the first failure is final
// and goes to every rank. A rank that answers no Ping for the silence_limit has failed, too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::bootstrap {

// The option "liveness_timeout".
[[nodiscard]] std::optional<std::chrono::milliseconds> silence_limit(config::Options const& options);

class CoordinatorServer {
  public:
    // A connection to another launcher (node_protocol.hpp).
    using NodeId = std::uint64_t;
    struct Events {
        // A rank's connection ended without Bye. Call fail() with the reason if it is known.
        std::function<void(std::int32_t rank)> lost;
        // The first failure that was reported.
        std::function<void(Failure const&)> failed;
        // Another launcher of the job came, said something, and went. Without these there are no others.
        std::function<void(NodeId, Hello const&)> node_joined;
        std::function<void(NodeId, Frame const&)> node_said;  // may throw FormatError
        std::function<void(NodeId)> node_lost;
        // For people.
        std::function<void(std::string const&)> log;
    };
    struct Settings {
        std::chrono::milliseconds disconnect_grace{500};
        std::chrono::milliseconds hello_timeout{10000};
        // For how long a rank may not answer; none: for ever.
        std::optional<std::chrono::milliseconds> silence_limit{60000};
        // Where to listen; port 0: one that the kernel picks.
        SocketAddress listen{"127.0.0.1", 0};
    };

    // Listens. With no ranks yet, set_nranks() has to follow before one comes.
    CoordinatorServer(std::int32_t nranks, Token token, Events events, Settings settings);
    CoordinatorServer(std::int32_t nranks, Token token, Events events)
        : CoordinatorServer{nranks, token, std::move(events), Settings{}} {}
    ~CoordinatorServer() = default;
    CoordinatorServer(CoordinatorServer const&) = delete;
    CoordinatorServer& operator=(CoordinatorServer const&) = delete;

    [[nodiscard]] SocketAddress const& address() const noexcept { return address_; }
    // Readable when process() has something to do.
    [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
    // How long process() may wait to be called when fd() stays quiet; none: for ever.
    [[nodiscard]] std::optional<std::chrono::milliseconds> timeout() const;
    // Does everything that can be done now; never blocks.
    void process();

    // How many ranks there are, once that is known.
    void set_nranks(std::int32_t nranks);
    void send_to_node(NodeId id, Bytes const& message) { send(id, message); }
    // Closes the connection; no event follows.
    void drop_node(NodeId id) { drop(id); }

    // Tells every other rank, or this one too, that it failed. Only the first failure counts.
    enum class Tell : std::uint8_t { others, everyone };
    void fail(Failure failure, Tell whom = Tell::others);
    // The process of a rank ended in good order (exit code 0). That is a failure if it did not say Bye, or if
    // others are in a session that it never joined.
    void rank_ended(Failure as_failure);
    [[nodiscard]] std::optional<Failure> const& failure() const noexcept { return failure_; }
    // Whether there are connections.
    [[nodiscard]] bool has_connections() const noexcept { return !connections_.empty(); }

  private:
    using Clock = std::chrono::steady_clock;
    using ConnectionId = NodeId;

    enum class Stage : std::uint8_t { greeting, member, reporter, node, closing };
    struct Connection {
        Connection(FileDescriptor socket_, Clock::time_point deadline_)
            : socket{std::move(socket_)}, deadline{deadline_} {}
        FileDescriptor socket;
        Stage stage{Stage::greeting};
        Clock::time_point deadline;  // for the greeting, for the next Ping, or for the peer to close
        int unanswered{0};           // Pings, since something came last
        FrameBuffer in{max_hello_size};
        Bytes out;
        std::size_t out_done{0};
        bool waits_to_write{false};
        std::int32_t rank{-1};
        std::uint32_t session{0};
        std::int64_t pid{0};
        std::string host;
        std::uint64_t gathers{0};
    };
    struct Waiting {
        Waiting(ConnectionId connection_, std::uint64_t request_, Clock::time_point deadline_)
            : connection{connection_}, request{request_}, deadline{deadline_} {}
        ConnectionId connection;
        std::uint64_t request;
        Clock::time_point deadline;
    };
    struct PendingGather {
        std::map<std::int32_t, Bytes> values;  // by rank
        std::vector<Waiting> waiting;
    };
    struct Session {
        std::map<std::string, Bytes> values;
        std::multimap<std::string, Waiting> gets;
        std::map<std::uint64_t, PendingGather> gathers;  // by number
        std::set<std::int32_t> joined;
        std::set<std::int32_t> left;
    };
    struct Lost {
        Lost(Clock::time_point deadline_, Failure failure_)
            : deadline{deadline_}, failure{std::move(failure_)} {}
        Clock::time_point deadline;
        Failure failure;
    };

    void watch(int fd, ConnectionId id, std::uint32_t events, int operation);
    void accept_all();
    void handle(ConnectionId id, std::uint32_t events);
    // Return whether the connection is still there.
    bool read_from(ConnectionId id);
    bool dispatch(ConnectionId id, Frame const& frame);
    bool greet(ConnectionId id, Hello const& hello);
    bool greet_node(ConnectionId id, Hello const& hello);
    void on_put(Connection const& connection, Put put);
    void on_get(ConnectionId id, Connection& connection, Get get);
    void on_gather(ConnectionId id, Connection& connection, Gather gather);
    void on_bye(ConnectionId id, Connection& connection);
    void on_abort(Connection const& connection, Abort const& abort);
    void finish_gather(Session& session, std::uint64_t number);
    void settle_gathers_without(Session& session, std::int32_t rank);

    void send(ConnectionId id, Bytes const& bytes);
    void flush(ConnectionId id);
    // Closes once everything is written.
    void close_gently(ConnectionId id);
    void drop(ConnectionId id);
    void reject(ConnectionId id, std::string const& reason);
    void connection_lost(ConnectionId id);
    void check_absent_ranks();
    void expect_answers(Connection& connection) const;
    void ask_members(Clock::time_point now);
    void expire();
    void expire_requests(Clock::time_point now);
    [[nodiscard]] std::vector<std::int32_t> missing_from(PendingGather const& pending) const;
    void log_stranger(std::string const& message);
    void log(std::string const& message) const;

    std::int32_t nranks_;
    Token token_;
    Events events_;
    Settings settings_;
    FileDescriptor listener_;
    SocketAddress address_;
    FileDescriptor epoll_;
    std::map<ConnectionId, Connection> connections_;
    ConnectionId next_id_{1};
    std::map<std::uint32_t, Session> sessions_;
    std::vector<std::uint32_t> sessions_opened_;  // by rank
    std::map<std::int32_t, Lost> lost_;           // by rank: waits for the owner's fail()
    std::map<std::int32_t, Failure> ended_;       // ranks whose process ended in good order
    std::optional<Failure> failure_;
    std::uint64_t strangers_logged_{0};
    std::optional<Clock::time_point> accept_again_;  // out of file descriptors until then
};

}  // namespace rapidsmpf::bootstrap

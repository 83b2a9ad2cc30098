#include <rapidsmpf/bootstrap/detail/server.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <functional>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::uint64_t listener_id = 0;
// Connections that have not shown the token, beyond one per rank.
constexpr std::size_t most_strangers = 64;
constexpr std::chrono::milliseconds accept_pause{200};
constexpr std::size_t max_node_frame_size = std::size_t{64} << 10;

std::string seconds_text(std::chrono::milliseconds duration) {
    auto const ms = duration.count();
    return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace

CoordinatorServer::CoordinatorServer(std::int32_t nranks, Token token, Events events, Settings settings)
    : nranks_{nranks},
      token_{token},
      events_{std::move(events)},
      settings_{settings},
      listener_{listen_on(settings_.listen)},
      address_{bound_address(listener_)},
      epoll_{::epoll_create1(EPOLL_CLOEXEC)},
      sessions_opened_(static_cast<std::size_t>(nranks), 0) {
    if (!epoll_.is_open()) {
        throw SystemError{"the coordinator cannot wait for its sockets", errno};
    }
    watch(listener_.get(), listener_id, EPOLLIN, EPOLL_CTL_ADD);
}

void CoordinatorServer::set_nranks(std::int32_t nranks) {
    nranks_ = nranks;
    sessions_opened_.resize(static_cast<std::size_t>(nranks), 0);
}

void CoordinatorServer::watch(int fd, ConnectionId id, std::uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
        throw SystemError{"the coordinator cannot watch a socket", errno};
    }
}

std::optional<std::chrono::milliseconds> CoordinatorServer::timeout() const {
    std::optional<Clock::time_point> first = accept_again_;
    auto const consider = [&](Clock::time_point deadline) {
        first = first ? std::min(*first, deadline) : deadline;
    };
    for (auto const& [id, connection] : connections_) {
        bool const asked = connection.stage == Stage::member && settings_.silence_limit && !failure_;
        if (asked || connection.stage == Stage::greeting || connection.stage == Stage::closing) {
            consider(connection.deadline);
        }
    }
    for (auto const& [index, session] : sessions_) {
        for (auto const& [key, waiting] : session.gets) {
            consider(waiting.deadline);
        }
        for (auto const& [number, pending] : session.gathers) {
            for (auto const& waiting : pending.waiting) {
                consider(waiting.deadline);
            }
        }
    }
    if (!failure_) {
        for (auto const& [rank, lost] : lost_) {
            consider(lost.deadline);
        }
    }
    if (!first) {
        return std::nullopt;
    }
    auto const left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now());
    return std::max(left, std::chrono::milliseconds{0});
}

void CoordinatorServer::process() {
    std::array<epoll_event, 64> ready{};
    for (;;) {
        auto const count = ::epoll_wait(epoll_.get(), ready.data(), ready.size(), 0);
        if (count <= 0) {
            break;
        }
        for (auto const& event : std::span{ready}.first(static_cast<std::size_t>(count))) {
            if (event.data.u64 == listener_id) {
                accept_all();
            } else {
                handle(event.data.u64, event.events);
            }
        }
    }
    expire();
}

void CoordinatorServer::accept_all() {
    for (;;) {
        FileDescriptor socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
        if (!socket.is_open()) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // The listener stays readable: stop looking at it for a moment instead of spinning.
                log("the coordinator cannot accept a connection: out of file descriptors or memory");
                watch(listener_.get(), listener_id, 0, EPOLL_CTL_MOD);
                accept_again_ = Clock::now() + accept_pause;
            }
            return;
        }
        int const on = 1;
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        notice_lost_host(socket);
        auto const strangers = static_cast<std::size_t>(std::count_if(
            connections_.begin(), connections_.end(),
            [](auto const& entry) { return entry.second.stage == Stage::greeting; }));
        if (strangers >= most_strangers + static_cast<std::size_t>(nranks_)) {
            auto const oldest = std::find_if(connections_.begin(), connections_.end(), [](auto const& entry) {
                return entry.second.stage == Stage::greeting;
            });
            log_stranger("too many connections without a greeting: closed the oldest");
            drop(oldest->first);
        }
        auto const id = next_id_++;
        watch(socket.get(), id, EPOLLIN | EPOLLRDHUP, EPOLL_CTL_ADD);
        connections_.emplace(id, Connection{std::move(socket), Clock::now() + settings_.hello_timeout});
    }
}

void CoordinatorServer::handle(ConnectionId id, std::uint32_t events) {
    if (!connections_.contains(id)) {
        return;  // dropped earlier in this round
    }
    // Reads first, whatever else happened: a Bye may wait in front of the end.
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && !read_from(id)) {
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        flush(id);
    }
}

bool CoordinatorServer::read_from(ConnectionId id) {
    std::array<std::uint8_t, 65536> bytes;  // NOLINT: filled by recv
    for (;;) {
        auto& connection = connections_.at(id);
        auto const got = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        }
        if (got <= 0) {
            connection_lost(id);
            return false;
        }
        connection.unanswered = 0;
        if (connection.stage == Stage::closing) {
            continue;  // nothing more is wanted from it
        }
        connection.in.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
        try {
            while (auto const frame = connection.in.next()) {
                if (!dispatch(id, *frame)) {
                    return false;
                }
                if (connections_.at(id).stage == Stage::closing) {
                    break;
                }
            }
        } catch (FormatError const& error) {
            if (connections_.at(id).stage == Stage::greeting) {
                log_stranger(std::string{"closed a connection that is not a rank's: "} + error.what());
                drop(id);
            } else {
                auto const& who = connections_.at(id);
                log_stranger(
                    (who.stage == Stage::node ? "launcher " : "rank ") + std::to_string(who.rank) + ": "
                    + error.what());
                connection_lost(id);
            }
            return false;
        }
    }
}

bool CoordinatorServer::dispatch(ConnectionId id, Frame const& frame) {
    auto& connection = connections_.at(id);
    if (connection.stage == Stage::greeting) {
        RAPIDSMPF_EXPECTS(frame.type == MessageType::hello, "no greeting", FormatError);
        return greet(id, Hello::decode(frame.payload));
    }
    if (connection.stage == Stage::node) {
        events_.node_said(id, frame);
        return connections_.contains(id);
    }
    if (frame.type == MessageType::abort) {
        on_abort(connection, Abort::decode(frame.payload));
        return connections_.contains(id);
    }
    if (frame.type == MessageType::bye) {
        Bye::decode(frame.payload);
        on_bye(id, connection);
        return connections_.contains(id);
    }
    RAPIDSMPF_EXPECTS(connection.stage == Stage::member, "a reporter asked for something", FormatError);
    switch (frame.type) {
        case MessageType::put:
            on_put(connection, Put::decode(frame.payload));
            break;
        case MessageType::get:
            on_get(id, connection, Get::decode(frame.payload));
            break;
        case MessageType::gather:
            on_gather(id, connection, Gather::decode(frame.payload));
            break;
        case MessageType::pong:
            Pong::decode(frame.payload);
            break;
        default:
            throw FormatError{"message of unknown type " + std::to_string(static_cast<int>(frame.type))};
    }
    return connections_.contains(id);
}

bool CoordinatorServer::greet(ConnectionId id, Hello const& hello) {
    auto& connection = connections_.at(id);
    if (!hello.token.matches(token_)) {
        // The server tells a stranger nothing more.
        log_stranger("closed a connection with a wrong token");
        drop(id);
        return false;
    }
    if (hello.role == Role::node) {
        return greet_node(id, hello);
    }
    if (hello.rank < 0 || hello.rank >= nranks_ || hello.nranks != nranks_) {
        reject(
            id, "it says that it is rank " + std::to_string(hello.rank) + " of "
                    + std::to_string(hello.nranks) + ", but this job has " + std::to_string(nranks_)
                    + " ranks");
        return connections_.contains(id);
    }
    connection.in.set_max_size(max_frame_size);
    connection.rank = hello.rank;
    connection.pid = hello.pid;
    connection.host = hello.host;
    if (hello.role == Role::reporter) {
        connection.stage = Stage::reporter;
        return true;
    }
    connection.stage = Stage::member;
    connection.session = sessions_opened_[static_cast<std::size_t>(hello.rank)]++;
    sessions_[connection.session].joined.insert(hello.rank);
    auto const pause = settings_.silence_limit.value_or(std::chrono::milliseconds{0}) / pings_in_silence;
    expect_answers(connection);
    send(id, Welcome{connection.session, static_cast<std::uint32_t>(pause.count())}.encode());
    if (failure_ && connections_.contains(id)) {
        send(id, failure_->encode());
    }
    check_absent_ranks();
    return connections_.contains(id);
}

bool CoordinatorServer::greet_node(ConnectionId id, Hello const& hello) {
    auto& connection = connections_.at(id);
    if (!events_.node_joined || !events_.node_said || !events_.node_lost) {
        reject(id, "this job has no other launchers");
        return connections_.contains(id);
    }
    connection.in.set_max_size(max_node_frame_size);
    connection.stage = Stage::node;
    connection.rank = hello.rank;
    connection.host = hello.host;
    events_.node_joined(id, hello);
    return connections_.contains(id);
}

void CoordinatorServer::send(ConnectionId id, Bytes const& bytes) {
    auto const found = connections_.find(id);
    if (found == connections_.end()) {
        return;
    }
    auto& out = found->second.out;
    out.insert(out.end(), bytes.begin(), bytes.end());
    flush(id);
}

void CoordinatorServer::flush(ConnectionId id) {
    auto const found = connections_.find(id);
    if (found == connections_.end()) {
        return;
    }
    auto& connection = found->second;
    while (connection.out_done < connection.out.size()) {
        auto const sent = ::send(
            connection.socket.get(), connection.out.data() + connection.out_done,
            connection.out.size() - connection.out_done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (sent < 0) {
            // Its end is seen, and treated, where it is read from.
            connection.out.clear();
            connection.out_done = 0;
            break;
        }
        connection.out_done += static_cast<std::size_t>(sent);
    }
    bool const all = connection.out_done == connection.out.size();
    if (all) {
        connection.out.clear();
        connection.out_done = 0;
        if (connection.stage == Stage::closing) {
            // The peer closes when it sees this end; it is dropped then.
            ::shutdown(connection.socket.get(), SHUT_WR);
        }
    }
    if (connection.waits_to_write == all) {
        connection.waits_to_write = !all;
        std::uint32_t const interest = EPOLLIN | EPOLLRDHUP | (all ? 0U : EPOLLOUT);
        watch(connection.socket.get(), id, interest, EPOLL_CTL_MOD);
    }
}

void CoordinatorServer::close_gently(ConnectionId id) {
    auto& connection = connections_.at(id);
    connection.stage = Stage::closing;
    connection.deadline = Clock::now() + settings_.hello_timeout;
    flush(id);
}

void CoordinatorServer::drop(ConnectionId id) {
    for (auto& [index, session] : sessions_) {
        std::erase_if(session.gets, [&](auto const& entry) { return entry.second.connection == id; });
        for (auto& [number, pending] : session.gathers) {
            std::erase_if(pending.waiting, [&](Waiting const& waiter) { return waiter.connection == id; });
        }
    }
    connections_.erase(id);
}

void CoordinatorServer::reject(ConnectionId id, std::string const& reason) {
    log_stranger("refused a rank: " + reason);
    send(id, Rejected{reason}.encode());
    close_gently(id);
}

void CoordinatorServer::connection_lost(ConnectionId id) {
    auto const& connection = connections_.at(id);
    bool const was_member = connection.stage == Stage::member;
    bool const was_node = connection.stage == Stage::node;
    Failure failure{
        connection.rank, connection.host, connection.pid,
        "it closed its connection to the coordinator without a goodbye (the process ended, was killed, or "
        "left its communicator open)"};
    drop(id);
    if (was_node) {
        events_.node_lost(id);
    }
    if (!was_member || failure_) {
        return;
    }
    if (auto const ended = ended_.find(failure.rank); ended != ended_.end()) {
        fail(Failure{ended->second});
        return;
    }
    auto const rank = failure.rank;
    lost_.try_emplace(rank, Clock::now() + settings_.disconnect_grace, std::move(failure));
    if (events_.lost) {
        events_.lost(rank);
    }
}

void CoordinatorServer::on_abort(Connection const& connection, Abort const& abort) {
    if (abort.culprit == Abort::myself) {
        fail(Failure{connection.rank, connection.host, connection.pid, abort.reason});
        return;
    }
    RAPIDSMPF_EXPECTS(abort.culprit >= 0 && abort.culprit < nranks_, "no such rank is at fault", FormatError);
    Failure failure{abort.culprit, "", 0, abort.reason};
    for (auto const& [id, other] : connections_) {
        if (other.stage == Stage::member && other.rank == abort.culprit) {
            failure.host = other.host;
            failure.pid = other.pid;
        }
    }
    // Who is convicted does not know of its own fault; who only came first knows.
    fail(std::move(failure), connection.stage == Stage::member ? Tell::everyone : Tell::others);
}

void CoordinatorServer::fail(Failure failure, Tell whom) {
    if (failure_) {
        return;
    }
    failure_ = std::move(failure);
    lost_.clear();
    auto const bytes = failure_->encode();
    std::vector<std::pair<std::int32_t, ConnectionId>> members;
    for (auto const& [id, connection] : connections_) {
        if (connection.stage == Stage::member
            && (whom == Tell::everyone || connection.rank != failure_->rank)) {
            members.emplace_back(connection.rank, id);
        }
    }
    // Rank 0, which may host this and end as soon as it knows, hears of it last.
    std::sort(members.begin(), members.end(), std::greater<>{});
    for (auto const& [rank, id] : members) {
        send(id, bytes);
    }
    if (events_.failed) {
        events_.failed(*failure_);
    }
}

void CoordinatorServer::rank_ended(Failure as_failure) {
    auto const rank = as_failure.rank;
    bool const open =
        lost_.contains(rank) || std::any_of(connections_.begin(), connections_.end(), [&](auto const& entry) {
            return entry.second.stage == Stage::member && entry.second.rank == rank;
        });
    if (open) {
        fail(std::move(as_failure));
        return;
    }
    ended_.insert_or_assign(rank, std::move(as_failure));
    check_absent_ranks();
}

void CoordinatorServer::check_absent_ranks() {
    for (auto const& [rank, failure] : ended_) {
        for (auto const& [id, connection] : connections_) {
            if (connection.stage == Stage::member
                && sessions_opened_[static_cast<std::size_t>(rank)] <= connection.session) {
                auto absent = failure;
                absent.reason = "its process ended before it joined the communicator that rank "
                                + std::to_string(connection.rank) + " is making";
                fail(std::move(absent));
                return;
            }
        }
    }
}

void CoordinatorServer::expire() {
    auto const now = Clock::now();
    if (accept_again_ && *accept_again_ <= now) {
        accept_again_.reset();
        watch(listener_.get(), listener_id, EPOLLIN, EPOLL_CTL_MOD);
    }
    std::vector<ConnectionId> silent;
    for (auto const& [id, connection] : connections_) {
        bool const bounded = connection.stage == Stage::greeting || connection.stage == Stage::closing;
        if (bounded && connection.deadline <= now) {
            silent.push_back(id);
        }
    }
    for (auto const id : silent) {
        if (connections_.at(id).stage == Stage::greeting) {
            log_stranger(
                "closed a connection that sent no greeting within " + seconds_text(settings_.hello_timeout));
        }
        drop(id);
    }
    expire_requests(now);
    ask_members(now);
    if (!failure_) {
        for (auto const& [rank, lost] : lost_) {
            if (lost.deadline <= now) {
                fail(Failure{lost.failure});
                break;
            }
        }
    }
}

// Any process that reaches the port can cause these: after the first ones, only every doubling of their number is logged.
void CoordinatorServer::log_stranger(std::string const& message) {
    constexpr std::uint64_t told_each = 16;
    ++strangers_logged_;
    if (strangers_logged_ <= told_each) {
        log(message);
    } else if (std::has_single_bit(strangers_logged_)) {
        log(message + " (" + std::to_string(strangers_logged_) + " such connections so far)");
    }
}

void CoordinatorServer::log(std::string const& message) const {
    if (events_.log) {
        events_.log(message);
    }
}

}  // namespace rapidsmpf::bootstrap

#include "bootstrap/coordinator.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <span>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::bootstrap {

namespace {

using Clock = std::chrono::steady_clock;

// How much longer than the coordinator a request waits for its answer: the coordinator knows what is missing. So long a
// greeting waits for its answer at least.
constexpr std::chrono::milliseconds answer_margin{5000};
// How long a goodbye waits for the coordinator to take notice.
constexpr std::chrono::milliseconds goodbye_timeout{2000};
// "for ever" still fits in the message.
constexpr std::chrono::milliseconds longest_timeout{std::chrono::hours{24 * 7}};

std::uint32_t to_timeout_ms(std::chrono::milliseconds timeout) {
    return static_cast<std::uint32_t>(
        std::clamp(timeout, std::chrono::milliseconds{0}, longest_timeout).count());
}

// Writes all; false when the other end is gone.
bool send_all(FileDescriptor const& socket, std::span<std::uint8_t const> bytes) noexcept {
    while (!bytes.empty()) {
        auto const sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

// Waits for bytes; false at the end of the stream. Throws TimeoutError, SystemError.
bool receive_some(FileDescriptor const& socket, FrameBuffer& into, Clock::time_point deadline) {
    for (;;) {
        auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd waiting{socket.get(), POLLIN, 0};
        auto const ready = ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
        if (ready == 0) {
            throw TimeoutError{"the coordinator does not answer"};
        }
        std::array<std::uint8_t, 4096> bytes;  // NOLINT: filled by recv
        auto const got = ready < 0 ? ready : ::recv(socket.get(), bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno != ECONNRESET) {
            throw SystemError{"cannot hear the coordinator", errno};
        }
        if (got <= 0) {
            return false;
        }
        into.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
        return true;
    }
}

std::string required_variable(char const* name) {
    auto const* const value = std::getenv(name);
    if (value == nullptr) {
        throw std::runtime_error{
            "this process was not started by rrun (" + std::string{name}
            + " is not set): start it as 'rrun -n N program ...'"};
    }
    return value;
}

FileDescriptor greet(Membership const& membership, Role role, std::chrono::milliseconds timeout) {
    auto socket = connect_to(membership.address, timeout);
    Hello const hello{membership.token, role, membership.rank, membership.nranks, ::getpid(), host_name()};
    if (!send_all(socket, hello.encode())) {
        throw std::runtime_error{"the coordinator at " + membership.address.str() + " closed the connection"};
    }
    return socket;
}

}  // namespace

Rank rank_variable(char const* name) {
    auto const text = required_variable(name);
    Rank value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size() || value < 0) {
        throw std::runtime_error{std::string{name} + "=" + text + " is not a rank"};
    }
    return value;
}

Membership Membership::from_environment() {
    Membership membership{
        SocketAddress::parse(required_variable("RRUN_SOCKET_ADDR")),
        Token::from_hex(required_variable("RRUN_SOCKET_TOKEN")), rank_variable("RRUN_RANK"),
        rank_variable("RRUN_NRANKS")};
    if (membership.rank >= membership.nranks) {
        throw std::runtime_error{
            "RRUN_RANK=" + std::to_string(membership.rank)
            + " is not below RRUN_NRANKS=" + std::to_string(membership.nranks)};
    }
    return membership;
}

struct Coordinator::State {
    explicit State(Rank rank_) : rank{rank_} {}

    enum class Sent : std::uint8_t { nothing, bye, abort };

    void run(FrameBuffer in) noexcept;
    void handle(Frame const& frame);
    void fail(RankFailure const& why);
    void deliver() RAPIDSMPF_REQUIRES(mutex);
    bool say(Bytes const& message) {
        MutexLock const lock{send_mutex};
        return send_all(socket, message);
    }

    Rank const rank;
    std::uint32_t ping_ms{0};  // how often the coordinator says that it is there; 0: it does not
    FileDescriptor socket;
    EventDescriptor stop_event;
    Mutex send_mutex;  // keeps messages whole

    Mutex mutex;
    ConditionVariable changed;
    std::uint64_t next_request RAPIDSMPF_GUARDED_BY(mutex){1};
    std::map<std::uint64_t, std::optional<Reply>> requests RAPIDSMPF_GUARDED_BY(mutex);
    std::optional<RankFailure> failure RAPIDSMPF_GUARDED_BY(mutex);
    std::vector<Rank> left RAPIDSMPF_GUARDED_BY(mutex);
    std::optional<Events> events RAPIDSMPF_GUARDED_BY(mutex);
    bool failure_delivered RAPIDSMPF_GUARDED_BY(mutex){false};
    std::size_t left_delivered RAPIDSMPF_GUARDED_BY(mutex){0};
    bool delivering RAPIDSMPF_GUARDED_BY(mutex){false};
    std::thread::id delivering_thread RAPIDSMPF_GUARDED_BY(mutex);
    bool closed RAPIDSMPF_GUARDED_BY(mutex){false};  // the connection has ended
    Sent sent RAPIDSMPF_GUARDED_BY(mutex){Sent::nothing};

    HomeProcess home;
    std::thread thread;
};

Coordinator::Coordinator(Membership const& membership, std::chrono::milliseconds timeout)
    : rank_{membership.rank}, nranks_{membership.nranks}, state_{std::make_shared<State>(membership.rank)} {
    state_->socket = greet(membership, Role::member, timeout);
    // It is there: a short timeout is about other ranks, not about how soon a busy launcher is given a core.
    auto const deadline = Clock::now() + std::max(timeout, answer_margin);
    FrameBuffer in{max_frame_size};
    std::optional<Frame> answer;
    while (!(answer = in.next())) {
        if (!receive_some(state_->socket, in, deadline)) {
            throw std::runtime_error{
                "the coordinator at " + membership.address.str() +
                " closed the connection: the token in RRUN_SOCKET_TOKEN is not this job's, or the job is "
                "ending"};
        }
    }
    if (answer->type == MessageType::rejected) {
        throw std::runtime_error{
            "the coordinator refuses this process: " + Rejected::decode(answer->payload).reason};
    }
    RAPIDSMPF_EXPECTS(
        answer->type == MessageType::welcome, "unexpected answer of the coordinator", FormatError);
    state_->ping_ms = Welcome::decode(answer->payload).ping_ms;
    state_->thread =
        std::thread{[state = state_, in = std::move(in)]() mutable { state->run(std::move(in)); }};
}

Coordinator::~Coordinator() {
    if (!state_->home.is_here()) {
        // A fork has the object but not the thread, which must not be joined or detached here; and the connection
        // is the parent's. So the state stays, for the life of the fork.
        static_cast<void>(std::make_unique<std::shared_ptr<State>>(std::move(state_)).release());
        return;
    }
    graceful_close(std::chrono::milliseconds{0});
    stop();
    state_->stop_event.signal();
    if (state_->thread.get_id() == std::this_thread::get_id()) {
        state_->thread.detach();  // destroyed by an event: the thread ends by itself
    } else {
        state_->thread.join();
    }
}

void Coordinator::State::run(FrameBuffer in) noexcept {
    std::string why{"the coordinator (rrun) closed the connection: it has ended or was killed"};
    std::array<std::uint8_t, 65536> bytes;  // NOLINT: filled by recv
    std::array waiting{pollfd{socket.get(), POLLIN, 0}, pollfd{stop_event.get(), POLLIN, 0}};
    int const pause = ping_ms > 0 ? static_cast<int>(ping_ms) : -1;
    int silent = 0;
    try {
        for (;;) {
            while (auto const frame = in.next()) {
                handle(*frame);
            }
            auto const ready = ::poll(waiting.data(), waiting.size(), pause);
            if (ready == 0 && ++silent > pings_in_silence) {
                // Pauses are counted, not the clock: this process may have been stopped together with the other.
                why =
                    std::string{silent_coordinator} + " for " + std::to_string(silent * ping_ms / 1000)
                    + " s (the option liveness_timeout): it is stopped, or its machine or the network is "
                      "gone";
                break;
            }
            if (ready <= 0) {
                continue;
            }
            silent = 0;
            if (waiting[0].revents != 0) {
                auto const got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
                if (got < 0 && errno == EINTR) {
                    continue;
                }
                if (got <= 0) {
                    break;
                }
                in.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
            } else if (waiting[1].revents != 0) {
                return;
            }
        }
    } catch (std::exception const& error) {
        why = std::string{"the coordinator sent something that is not understood: "} + error.what();
    }
    {
        UniqueLock lock{mutex};
        closed = true;
        changed.notify_all();
        if (sent != Sent::nothing) {
            return;
        }
    }
    fail(RankFailure{-1, "", 0, why});
}

void Coordinator::State::handle(Frame const& frame) {
    switch (frame.type) {
        case MessageType::reply: {
            auto reply = Reply::decode(frame.payload);
            MutexLock const lock{mutex};
            // Drops a reply that no thread waits for any more.
            if (auto const found = requests.find(reply.request); found != requests.end()) {
                found->second = std::move(reply);
                changed.notify_all();
            }
            break;
        }
        case MessageType::failure: {
            auto const failed = Failure::decode(frame.payload);
            fail(RankFailure{failed.rank, failed.host, failed.pid, failed.reason});
            break;
        }
        case MessageType::ping:
            Ping::decode(frame.payload);
            (void)say(Pong::encode());
            break;
        case MessageType::left: {
            auto const who = Left::decode(frame.payload).rank;
            MutexLock const lock{mutex};
            left.push_back(who);
            deliver();
            break;
        }
        default:
            throw FormatError{"type " + std::to_string(static_cast<int>(frame.type))};
    }
}

void Coordinator::State::fail(RankFailure const& why) {
    MutexLock const lock{mutex};
    if (failure) {
        return;
    }
    failure = why;
    changed.notify_all();
    deliver();
}

// Calls the events for what has happened and was not told yet, one at a time and outside the lock.
void Coordinator::State::deliver() {
    while (events && !delivering) {
        std::function<void()> call;
        if (left_delivered < left.size()) {
            call = [tell = events->left, who = left[left_delivered++]] { tell(who); };
        } else if (failure && !failure_delivered) {
            failure_delivered = true;
            call = [tell = events->failed, why = *failure] { tell(why); };
        } else {
            return;
        }
        delivering = true;
        delivering_thread = std::this_thread::get_id();
        {
            MutexUnlock const unlocked{mutex};
            call();
            call = nullptr;  // may own what the event used
        }
        delivering = false;
        changed.notify_all();
    }
}

void Coordinator::start(Events events) {
    auto const state = state_;  // an event may destroy this object; it goes after the lock
    MutexLock const lock{state->mutex};
    state->events = std::move(events);
    state->deliver();
}

void Coordinator::stop() {
    UniqueLock lock{state_->mutex};
    state_->events.reset();
    state_->changed.wait(lock, [&]() RAPIDSMPF_REQUIRES(state_->mutex) {
        return !state_->delivering || state_->delivering_thread == std::this_thread::get_id();
    });
}

void Coordinator::put(std::string const& key, Bytes value) {
    state_->home.require("connection to the coordinator");
    RAPIDSMPF_EXPECTS(
        key.size() <= max_key_size && value.size() <= max_value_size,
        "a key may have 1 KiB and a value 16 MiB", std::invalid_argument);
    {
        MutexLock const lock{state_->mutex};
        if (state_->failure) {
            state_->failure->raise();
        }
    }
    // If the coordinator is gone, the thread reports it.
    state_->say(Put{key, std::move(value)}.encode());
}

std::vector<Bytes> Coordinator::ask(
    std::uint64_t request, Bytes const& message, std::string const& what, std::chrono::milliseconds timeout) {
    state_->home.require("connection to the coordinator");
    state_->say(message);
    UniqueLock lock{state_->mutex};
    auto const answered = state_->changed.wait_for(
        lock, std::min(timeout, longest_timeout) + answer_margin, [&]() RAPIDSMPF_REQUIRES(state_->mutex) {
            return state_->requests.at(request).has_value() || state_->failure || state_->closed;
        });
    auto const reply = std::exchange(state_->requests.at(request), std::nullopt);
    state_->requests.erase(request);
    if (reply && reply->status == Reply::Status::ok) {
        return reply->values;
    }
    if (state_->failure) {
        state_->failure->raise();
    }
    if (reply && reply->status == Reply::Status::impossible) {
        throw std::runtime_error{what + " cannot finish: " + reply->error};
    }
    if (answered && !reply) {
        throw std::runtime_error{what + ": the connection to the coordinator is closed"};
    }
    throw TimeoutError{
        what + " did not finish within " + std::to_string(timeout.count())
        + " ms: " + (reply ? reply->error : "the coordinator does not answer")};
}

Bytes Coordinator::get(std::string const& key, std::chrono::milliseconds timeout) {
    RAPIDSMPF_EXPECTS(key.size() <= max_key_size, "a key may have 1 KiB", std::invalid_argument);
    std::uint64_t request = 0;
    {
        MutexLock const lock{state_->mutex};
        request = state_->next_request++;
        state_->requests.emplace(request, std::nullopt);
    }
    auto values =
        ask(request, Get{request, key, to_timeout_ms(timeout)}.encode(), "waiting for the key '" + key + "'",
            timeout);
    RAPIDSMPF_EXPECTS(values.size() == 1, "the coordinator sent no value", FormatError);
    return std::move(values.front());
}

std::vector<Bytes> Coordinator::gather(Bytes value, std::chrono::milliseconds timeout) {
    RAPIDSMPF_EXPECTS(value.size() <= max_value_size, "a value may have 16 MiB", std::invalid_argument);
    std::uint64_t request = 0;
    {
        MutexLock const lock{state_->mutex};
        request = state_->next_request++;
        state_->requests.emplace(request, std::nullopt);
    }
    auto values =
        ask(request, Gather{request, std::move(value), to_timeout_ms(timeout)}.encode(),
            "waiting for all ranks", timeout);
    RAPIDSMPF_EXPECTS(
        values.size() == static_cast<std::size_t>(nranks_), "the coordinator sent too few values",
        FormatError);
    return values;
}

void Coordinator::barrier(std::chrono::milliseconds timeout) {
    static_cast<void>(gather({}, timeout));
}

void Coordinator::abort(std::string const& reason) {
    give_up(Abort{reason});
}

void Coordinator::report_protocol_violation(Rank culprit, std::string const& reason) {
    give_up(Abort{reason, culprit});
}

void Coordinator::give_up(Abort const& message) {
    if (!state_->home.is_here()) {
        return;  // a fork does not speak for its parent
    }
    {
        MutexLock const lock{state_->mutex};
        if (state_->sent != State::Sent::nothing) {
            return;
        }
        state_->sent = State::Sent::abort;
    }
    state_->say(message.encode());
}

void Coordinator::graceful_close(std::chrono::milliseconds patience) {
    if (!state_->home.is_here()) {
        return;
    }
    if (patience.count() > 0) {
        try {
            // The last thing that every rank does.
            barrier(patience);
        } catch (std::exception const&) {
            // Some rank takes longer, has left already, or failed: no reason to stay.
        }
    }
    {
        MutexLock const lock{state_->mutex};
        if (state_->sent != State::Sent::nothing) {
            return;
        }
        state_->sent = State::Sent::bye;
    }
    if (!state_->say(Bye::encode())) {
        return;
    }
    // Its end of the connection says that it knows: this process may end now.
    UniqueLock lock{state_->mutex};
    if (state_->thread.get_id() != std::this_thread::get_id()) {
        state_->changed.wait_for(
            lock, goodbye_timeout, [&]() RAPIDSMPF_REQUIRES(state_->mutex) { return state_->closed; });
    }
}

void Coordinator::report_abort(
    Membership const& membership, std::string const& reason, std::chrono::milliseconds timeout,
    std::optional<Rank> culprit) {
    auto const deadline = Clock::now() + timeout;
    auto const socket = greet(membership, Role::reporter, timeout);
    auto const at_fault = culprit.value_or(membership.rank);
    Abort const message{reason, at_fault == membership.rank ? Abort::myself : at_fault};
    if (!send_all(socket, message.encode()) || !send_all(socket, Bye::encode())) {
        throw std::runtime_error{"the coordinator closed the connection"};
    }
    // Its end says that it has read everything.
    FrameBuffer in{max_frame_size};
    while (receive_some(socket, in, deadline)) {
    }
}

}  // namespace rapidsmpf::bootstrap

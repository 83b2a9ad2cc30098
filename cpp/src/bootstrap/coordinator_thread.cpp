#include "bootstrap/coordinator_thread.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/fork.hpp>

namespace rapidsmpf::bootstrap {

namespace {

using Clock = std::chrono::steady_clock;

CoordinatorServer::Settings settings_of(SocketAddress const& address, config::Options const& options) {
    CoordinatorServer::Settings settings;
    settings.listen = address;
    settings.silence_limit = silence_limit(options);
    return settings;
}

CoordinatorServer::Events logged_by(CoordinatorThread::Log const& log) {
    CoordinatorServer::Events events;
    events.log = log;
    return events;
}

}  // namespace

struct CoordinatorThread::State {
    State(
        std::int32_t nranks, Token const& token, SocketAddress const& listen, Log log_,
        std::chrono::milliseconds goodbye_, config::Options const& options)
        : log{std::move(log_)},
          goodbye{goodbye_},
          server{nranks, token, logged_by(log), settings_of(listen, options)} {}

    void run() noexcept {
        // Signals are the process's business.
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        try {
            serve();
        } catch (std::exception const& error) {
            log(std::string{"the coordinator of this communicator ends: "} + error.what());
        }
    }

    void serve() {
        std::array waiting{pollfd{server.fd(), POLLIN, 0}, pollfd{stop.get(), POLLIN, 0}};
        std::optional<Clock::time_point> deadline;
        while (!deadline || (server.has_connections() && Clock::now() < *deadline)) {
            auto timeout = server.timeout();
            if (deadline) {
                auto const left = std::max(
                    std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()),
                    std::chrono::milliseconds{0});
                timeout = timeout ? std::min(*timeout, left) : left;
            }
            ::poll(waiting.data(), waiting.size(), timeout ? static_cast<int>(timeout->count()) : -1);
            server.process();
            if (!deadline && (waiting[1].revents & POLLIN) != 0) {
                deadline = Clock::now() + goodbye;
                waiting[1].fd = -1;  // it stays readable
            }
        }
    }

    Log const log;
    std::chrono::milliseconds const goodbye;
    CoordinatorServer server;  // the thread's, once that runs
    EventDescriptor stop;
    HomeProcess home;
    std::thread thread;
};

CoordinatorThread::CoordinatorThread(
    std::int32_t nranks, Token const& token, SocketAddress const& listen, Log log,
    std::chrono::milliseconds goodbye, config::Options const& options)
    : state_{std::make_unique<State>(nranks, token, listen, std::move(log), goodbye, options)},
      address_{state_->server.address()} {
    state_->thread = std::thread{[state = state_.get()] { state->run(); }};
}

CoordinatorThread::~CoordinatorThread() {
    if (!state_->home.is_here()) {
        // A fork has the object but not the thread; it stays, for the life of the fork.
        static_cast<void>(state_.release());
        return;
    }
    state_->stop.signal();
    state_->thread.join();
}

}  // namespace rapidsmpf::bootstrap

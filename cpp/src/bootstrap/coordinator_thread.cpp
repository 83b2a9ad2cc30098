#include <rapidsmpf/bootstrap/coordinator_thread.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <iostream>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include <rapidsmpf/core/file_descriptor.hpp>

namespace rapidsmpf::bootstrap {

namespace {

CoordinatorServer::Settings listening_at(SocketAddress const& address) {
    CoordinatorServer::Settings settings;
    settings.listen = address;
    return settings;
}

CoordinatorServer::Events told_on_standard_error() {
    CoordinatorServer::Events events;
    events.log = [](std::string const& message) {
        std::cerr << "rapidsmpf coordinator: " + message + "\n" << std::flush;
    };
    return events;
}

}  // namespace

struct CoordinatorThread::State {
    State(std::int32_t nranks, Token token, SocketAddress const& listen)
        : server{nranks, token, told_on_standard_error(), listening_at(listen)} {}

    void run() {
        // Signals are the process's business.
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        std::array waiting{pollfd{server.fd(), POLLIN, 0}, pollfd{stop.get(), POLLIN, 0}};
        while (!stopped.load()) {
            auto const timeout = server.timeout();
            ::poll(waiting.data(), waiting.size(), timeout ? static_cast<int>(timeout->count()) : -1);
            server.process();
        }
    }

    CoordinatorServer server;
    EventDescriptor stop;
    std::atomic<bool> stopped{false};
    pid_t owner{::getpid()};
    std::thread thread;
};

CoordinatorThread::CoordinatorThread(std::int32_t nranks, Token token, SocketAddress const& listen)
    : state_{std::make_unique<State>(nranks, token, listen)} {
    state_->thread = std::thread{[state = state_.get()] { state->run(); }};
}

CoordinatorThread::~CoordinatorThread() {
    if (state_->owner != ::getpid()) {
        // A fork has the object but not the thread; it stays, for the life of the fork.
        static_cast<void>(state_.release());
        return;
    }
    state_->stopped = true;
    state_->stop.signal();
    state_->thread.join();
}

SocketAddress CoordinatorThread::address() const {
    return state_->server.address();
}

}  // namespace rapidsmpf::bootstrap

// A coordinator in a thread of its own, for ranks without rrun.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::bootstrap {

// Serves until it is destroyed. In a fork of its process it does nothing, and destroying it there has no effect.
class CoordinatorThread {
  public:
    using Log = std::function<void(std::string const&)>;

    // `log` is called from the thread. `goodbye`: how long its end waits for those who are still connected to say
    // goodbye, so that they know that it went in good order. `options`: liveness_timeout. Throws SystemError when it
    // cannot listen there.
    CoordinatorThread(
        std::int32_t nranks, Token const& token, SocketAddress const& listen, Log log,
        std::chrono::milliseconds goodbye = std::chrono::milliseconds{0},
        config::Options const& options = config::Options{});
    ~CoordinatorThread();
    CoordinatorThread(CoordinatorThread const&) = delete;
    CoordinatorThread& operator=(CoordinatorThread const&) = delete;

    [[nodiscard]] SocketAddress const& address() const noexcept { return address_; }

  private:
    struct State;
    std::unique_ptr<State> state_;
    SocketAddress address_;
};

}  // namespace rapidsmpf::bootstrap

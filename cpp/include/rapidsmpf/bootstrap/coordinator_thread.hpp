// A coordinator in a thread of its own, for jobs without rrun.
#pragma once

#include <memory>

#include <rapidsmpf/bootstrap/server.hpp>

namespace rapidsmpf::bootstrap {

// Serves until it is destroyed. In a fork of its process it does nothing, and destroying it there has no effect.
class CoordinatorThread {
  public:
    // Throws SystemError when it cannot listen there.
    CoordinatorThread(std::int32_t nranks, Token token, SocketAddress const& listen);
    ~CoordinatorThread();
    CoordinatorThread(CoordinatorThread const&) = delete;
    CoordinatorThread& operator=(CoordinatorThread const&) = delete;

    [[nodiscard]] SocketAddress address() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace rapidsmpf::bootstrap

// Returns when every rank has come to it.
#pragma once

#include <functional>
#include <memory>

#include <rapidsmpf/coll/shuffler.hpp>

namespace rapidsmpf::coll {

// A rank comes to the barrier when it makes one, and may do other things before it waits. Life time and errors
// are those of the Shuffler.
class Barrier {
  public:
    // Throws std::invalid_argument when the operation id is in use on this rank or out of range.
    Barrier(std::shared_ptr<Communicator> comm, OpId op);
    ~Barrier();
    Barrier(Barrier const&) = delete;
    Barrier& operator=(Barrier const&) = delete;

    // Throws TimeoutError naming the ranks that are missing, RankFailedError.
    void wait(Timeout timeout = {});

    // Calls `told` once, when wait() would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake a waiter. For waits without a thread (streaming/collectives.hpp).
    void tell_when_complete(std::function<void()> told);

  private:
    std::shared_ptr<Communicator> comm_;
    std::shared_ptr<exchange::Operation> operation_;
};

void barrier(std::shared_ptr<Communicator> const& comm, OpId op, Timeout timeout = {});

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::Barrier;
}  // namespace rapidsmpf

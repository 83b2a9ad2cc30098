// The MPI communicator for Python.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/mpi/mpi.hpp>

namespace rapidsmpf::python {

// Those that an uncaught exception ends; owns none of them.
class LiveCommunicators {
  public:
    void add(std::shared_ptr<Communicator> const& comm) {
        MutexLock const lock{mutex_};
        std::erase_if(comms_, [](auto const& other) { return other.expired(); });
        comms_.push_back(comm);
    }
    void abort(std::string const& reason) noexcept {
        std::vector<std::weak_ptr<Communicator>> comms;
        {
            MutexLock const lock{mutex_};
            comms = comms_;
        }
        for (auto const& weak : comms) {
            if (auto const comm = weak.lock()) {
                try {
                    comm->abort(reason);
                } catch (std::exception const&) {
                    // The process ends anyway, which the others notice without the reason.
                }
            }
        }
    }

  private:
    Mutex mutex_;
    std::vector<std::weak_ptr<Communicator>> comms_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::python

// A job whose processes a batch system starts by itself (srun, mpirun), without rrun: who this process is, and the
// coordinator that rank 0 then has in a thread of its own.
//
// The ranks find it through PMIx where the batch system speaks it. Otherwise Slurm's variables say where rank 0 is and
// give the port, and RRUN_TOKEN in the environment is the secret that all share.
#pragma once

#include <chrono>
#include <memory>

#include <rapidsmpf/core/mutex.hpp>

#include "bootstrap/coordinator.hpp"

namespace rapidsmpf::bootstrap {

class BatchJob {
  public:
    // Whether the environment is that of a batch system's process. Says nothing about the others.
    [[nodiscard]] static bool is_present();
    // This process's job. The first call meets the other ranks (by PMIx), so that all have to call it; the coordinator
    // lives as long as this process. Throws std::runtime_error that says what is missing.
    [[nodiscard]] static std::shared_ptr<BatchJob> of_this_process();
    // The same, if there was such a call; else null.
    [[nodiscard]] static std::shared_ptr<BatchJob> if_known();
    ~BatchJob();
    BatchJob(BatchJob const&) = delete;
    BatchJob& operator=(BatchJob const&) = delete;

    [[nodiscard]] Membership const& membership() const;
    [[nodiscard]] bool is_on_one_host() const;
    // Returns when the coordinator can be connected to. Throws TimeoutError.
    void wait_for_coordinator(std::chrono::milliseconds timeout) const;

  private:
    struct State;
    struct OnlyOne {
        Mutex mutex;
        std::shared_ptr<BatchJob> job RAPIDSMPF_GUARDED_BY(mutex);
    };
    static OnlyOne& only_one();
    explicit BatchJob(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace rapidsmpf::bootstrap

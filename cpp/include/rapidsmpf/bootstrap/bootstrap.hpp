// How the ranks of a job find each other: what the launcher (rrun) says in the environment, and the
// communicator that joins its processes.
//
// rrun sets RRUN_RANK, RRUN_NRANKS, RRUN_LOCAL_RANK, RRUN_LOCAL_NRANKS and, for its coordinator,
// RRUN_SOCKET_ADDR and RRUN_SOCKET_TOKEN. Without rrun, the processes of a batch system's step (srun, mpirun) meet
// through PMIx or Slurm's variables, see batch_job.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/communicator/ucxx.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/progress_thread.hpp>

namespace rapidsmpf::bootstrap {

// Whether this process was started by rrun.
[[nodiscard]] bool is_running_with_rrun();
// Whether this process is a task of Slurm that was started without rrun.
[[nodiscard]] bool is_running_with_slurm();
// This process's rank, and how many there are: of RRUN_RANK, PMIX_RANK or SLURM_PROCID, whichever is set first. Throw
// std::runtime_error when this process was started by none of them.
[[nodiscard]] Rank get_rank();
[[nodiscard]] Rank get_nranks();

// A communicator of all ranks of the job: rank k of the launcher is rank k of the communicator. Every rank has
// to call it (the n-th call on each rank makes one communicator); blocks until all have. Throws
// std::runtime_error when not started by a launcher, RankFailedError when a rank died, TimeoutError naming the
// ranks that did not come within the option "bootstrap_timeout" (default 120 s).
// A null progress thread: a new one is made.
[[nodiscard]] std::shared_ptr<UcxxCommunicator> create_ucxx_comm(
    config::Options options = config::Options{}, std::shared_ptr<ProgressThread> progress_thread = nullptr);

// A communicator that is made by hand: the root's address travels by other means (Dask, Ray, a file).
// As UcxxCommunicator::join(), and ranks notice the end of others: the root hosts a coordinator, on the interface
// with the IPv4 address of the option "coordinator_host" (default 127.0.0.1: for ranks on its own host; those of
// other hosts warn that they go without).
[[nodiscard]] std::shared_ptr<UcxxCommunicator> join_ucxx_comm(
    Rank nranks, std::shared_ptr<::ucxx::Worker> worker,
    std::optional<UcxxCommunicator::Address> const& root_address, config::Options options = config::Options{},
    std::shared_ptr<ProgressThread> progress_thread = nullptr);

// Tells the coordinator that this rank gives up because of `reason` ("ValueError: ..."): pending and future
// waits of all other ranks raise RankFailedError with it. For the handler of an uncaught exception; needs no
// communicator, never throws, and does nothing when not started by rrun. A rank that ends because another one failed names
// that as the culprit: the job's error is then that rank's, whichever process ends first.
void report_abort(std::string const& reason, std::optional<Rank> culprit = {}) noexcept;

}  // namespace rapidsmpf::bootstrap

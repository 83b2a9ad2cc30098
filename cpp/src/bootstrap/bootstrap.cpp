#include <rapidsmpf/bootstrap/bootstrap.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include <ucxx/api.h>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>

#include "bootstrap/batch_job.hpp"
#include "bootstrap/coordinator.hpp"

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::chrono::milliseconds report_timeout{2000};

std::chrono::milliseconds bootstrap_timeout(config::Options const& options) {
    auto const seconds = config::get_seconds(options, "bootstrap_timeout");
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{seconds});
}

// Where this process belongs, whichever launcher started it.
struct Job {
    Membership membership;
    UcxxReach reach;
};

bool is_started_by_rrun() {
    return std::getenv("RRUN_RANK") != nullptr;
}

Job find_job(std::chrono::milliseconds timeout) {
    if (is_started_by_rrun() || !BatchJob::is_present()) {
        auto membership = Membership::from_environment();
        auto const* const on_this_host = std::getenv("RRUN_LOCAL_NRANKS");
        bool const one_host = on_this_host != nullptr && on_this_host == std::to_string(membership.nranks);
        return Job{std::move(membership), one_host ? UcxxReach::one_host : UcxxReach::anywhere};
    }
    auto const job = BatchJob::of_this_process();
    job->wait_for_coordinator(timeout);
    return Job{job->membership(), job->is_on_one_host() ? UcxxReach::one_host : UcxxReach::anywhere};
}

}  // namespace

bool is_running_with_rrun() {
    return is_started_by_rrun() && std::getenv("RRUN_SOCKET_ADDR") != nullptr;
}

bool is_running_with_slurm() {
    return !is_started_by_rrun() && std::getenv("SLURM_JOB_ID") != nullptr
           && std::getenv("SLURM_PROCID") != nullptr;
}

Rank get_rank() {
    if (!is_started_by_rrun() && BatchJob::is_present()) {
        for (auto const* const name : {"PMIX_RANK", "SLURM_PROCID"}) {
            if (std::getenv(name) != nullptr) {
                return rank_variable(name);
            }
        }
    }
    return Membership::from_environment().rank;
}

Rank get_nranks() {
    if (!is_started_by_rrun() && BatchJob::is_present()) {
        for (auto const* const name :
             {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE"}) {
            if (std::getenv(name) != nullptr) {
                return rank_variable(name);
            }
        }
        return BatchJob::of_this_process()->membership().nranks;
    }
    return Membership::from_environment().nranks;
}

std::shared_ptr<UcxxCommunicator> create_ucxx_comm(
    config::Options options, std::shared_ptr<ProgressThread> progress_thread) {
    auto const timeout = bootstrap_timeout(options);
    auto const job = find_job(timeout);
    auto const& membership = job.membership;
    auto coordinator = std::make_unique<Coordinator>(membership, timeout);
    auto worker = make_ucxx_worker(job.reach);
    auto const addresses = coordinator->gather(ucxx_worker_address(*worker), timeout);
    auto comm = UcxxCommunicator::connect(
        membership.rank, addresses, membership.token, std::move(worker), std::move(coordinator),
        std::move(options), std::move(progress_thread));
    // A rank must not leave again before the others have attached to its memory.
    comm->barrier(timeout);
    return comm;
}

void report_abort(std::string const& reason, std::optional<Rank> culprit) noexcept {
    try {
        if (is_running_with_rrun()) {
            Coordinator::report_abort(Membership::from_environment(), reason, report_timeout, culprit);
        } else if (auto const job = BatchJob::if_known()) {
            Coordinator::report_abort(job->membership(), reason, report_timeout, culprit);
        }
    } catch (std::exception const&) {
        // The launcher sees this process end anyway, if without the reason.
    }
}

}  // namespace rapidsmpf::bootstrap

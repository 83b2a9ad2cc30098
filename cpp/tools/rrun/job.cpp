#include "job.hpp"

#include <memory>
#include <stdexcept>

#include <rapidsmpf/bootstrap/detail/slurm.hpp>

namespace rapidsmpf::rrun {

namespace {

using bootstrap::PmixSession;
using bootstrap::SlurmStep;

LocalSeats seats_of_task(
    CommandLine const& command_line, std::int32_t local_task, std::int32_t tasks_on_host) {
    auto const n = command_line.nranks;
    return LocalSeats{local_task * n, n, tasks_on_host * n};
}

NodePlan plan_by_batch_system(CommandLine const& command_line, PmixSession* pmix) {
    NodePlan plan;
    plan.pmix = pmix;
    auto const step = SlurmStep::from_environment();
    if (pmix != nullptr) {
        plan.node_rank = pmix->rank();
        plan.nnodes = pmix->nranks();
        auto const local = pmix->local_rank();
        auto const on_host = pmix->local_nranks();
        plan.seats = local >= 0 && on_host > local ? seats_of_task(command_line, local, on_host)
                                                   : seats_of_task(command_line, 0, 1);
        // Where all are on one host, no other host needs to reach the coordinator.
        plan.host = on_host == plan.nnodes ? "127.0.0.1" : "";
        return plan;
    }
    if (!step) {
        throw UsageError{
            "--slurm: this is no task of Slurm (SLURM_PROCID is not set): srun ... rrun --slurm program"};
    }
    plan.node_rank = step->task;
    plan.nnodes = step->tasks;
    plan.seats = seats_of_task(command_line, step->local_task, step->tasks_on_host);
    plan.host = step->first_host;
    plan.port = step->port;
    return plan;
}

int run_node(CommandLine const& command_line) {
    std::unique_ptr<PmixSession> pmix;
    NodePlan plan;
    if (command_line.slurm) {
        bool const placed = command_line.coordinator || !command_line.coordination_dir.empty();
        pmix = placed ? nullptr : PmixSession::open();
        plan = plan_by_batch_system(command_line, pmix.get());
    } else {
        plan.node_rank = command_line.node_rank;
        plan.nnodes = command_line.nnodes;
        plan.seats = seats_of_task(command_line, 0, 1);
    }
    if (command_line.coordinator) {
        plan.host = command_line.coordinator->host;
        plan.port = command_line.coordinator->port != 0 ? command_line.coordinator->port : plan.port;
    } else if (!command_line.coordination_dir.empty()) {
        plan.host.clear();
        plan.port = 0;
    }
    plan.token = bootstrap::find_token(command_line.token_file);
    bool const carried = plan.pmix != nullptr || !command_line.coordination_dir.empty();
    if (!plan.token && !carried && plan.nnodes > 1) {
        throw UsageError{
            "the hosts of a job need a common secret: RRUN_TOKEN in the environment or --token-file, 64 "
            "hexadecimal "
            "digits as of 'openssl rand -hex 32'; or -d with a folder that all of them see"};
    }
    return plan.node_rank == 0 ? run_head_of_plan(command_line, plan) : run_node_of_plan(command_line, plan);
}

}  // namespace

int run_job(CommandLine const& command_line) {
    if (command_line.action == Action::obey) {
        return run_node_by_spec();
    }
    if (!command_line.hosts.empty()) {
        return run_head_over_hosts(command_line);
    }
    if (command_line.slurm || command_line.is_one_rrun_per_host()) {
        return run_node(command_line);
    }
    return run_local_job(command_line);
}

}  // namespace rapidsmpf::rrun

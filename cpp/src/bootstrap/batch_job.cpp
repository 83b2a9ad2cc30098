#include "bootstrap/batch_job.hpp"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <poll.h>

#include <rapidsmpf/bootstrap/detail/pmix.hpp>
#include <rapidsmpf/bootstrap/detail/slurm.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "bootstrap/coordinator_thread.hpp"

namespace rapidsmpf::bootstrap {

struct BatchJob::State {
    std::unique_ptr<PmixSession> pmix;
    std::unique_ptr<CoordinatorThread> coordinator;  // on rank 0
    std::optional<Membership> membership;
    bool on_one_host{false};
};

namespace {

void say_on_standard_error(std::string const& message) {
    std::cerr << "rapidsmpf coordinator: " + message + "\n" << std::flush;
}

// "address token", as PMIx carries it.
Membership parse_rendezvous(std::string const& text, Rank rank, Rank nranks) {
    auto const space = text.find(' ');
    RAPIDSMPF_EXPECTS(space != std::string::npos, "PMIx carried something else", FormatError);
    return Membership{
        SocketAddress::parse(text.substr(0, space)), Token::from_hex(text.substr(space + 1)), rank, nranks};
}

}  // namespace

// A batch system starts a process once: the one place where what belongs to the process as a whole is kept.
BatchJob::OnlyOne& BatchJob::only_one() {
    static OnlyOne one;
    return one;
}

bool BatchJob::is_present() {
    return std::getenv("PMIX_RANK") != nullptr || std::getenv("SLURM_PROCID") != nullptr;
}

BatchJob::BatchJob(std::unique_ptr<State> state) : state_{std::move(state)} {}
BatchJob::~BatchJob() = default;

std::shared_ptr<BatchJob> BatchJob::if_known() {
    MutexLock const lock{only_one().mutex};
    return only_one().job;
}

std::shared_ptr<BatchJob> BatchJob::of_this_process() {
    MutexLock const lock{only_one().mutex};
    auto& job = only_one().job;
    if (job) {
        return job;
    }
    auto state = std::make_unique<State>();
    state->pmix = PmixSession::open();
    if (state->pmix) {
        auto& pmix = *state->pmix;
        state->on_one_host = pmix.local_nranks() == pmix.nranks();
        std::string rendezvous;
        if (pmix.rank() == 0) {
            auto const token = Token::random();
            state->coordinator = std::make_unique<CoordinatorThread>(
                pmix.nranks(), token, SocketAddress{state->on_one_host ? "127.0.0.1" : own_address(), 0},
                say_on_standard_error);
            rendezvous = state->coordinator->address().str() + " " + token.hex();
        }
        state->membership =
            parse_rendezvous(pmix.broadcast("rapidsmpf.coordinator", rendezvous), pmix.rank(), pmix.nranks());
    } else {
        auto const step = SlurmStep::from_environment();
        if (!step) {
            throw std::runtime_error{
                "PMIX_RANK is set, but there is no libpmix.so.2 to ask: put it on LD_LIBRARY_PATH, or start "
                "the program "
                "as 'rrun -n N program ...'"};
        }
        auto token = find_token("");
        if (!token && step->tasks > 1) {
            throw std::runtime_error{
                "the tasks of this step need a common secret: before srun, export RRUN_TOKEN=$(openssl rand "
                "-hex 32); or "
                "use srun --mpi=pmix, or srun ... rrun --slurm"};
        }
        if (!token) {
            token = Token::random();
        }
        state->on_one_host = step->tasks_on_host == step->tasks;
        SocketAddress const address{resolve_host(step->first_host), step->port};
        if (step->task == 0) {
            state->coordinator =
                std::make_unique<CoordinatorThread>(step->tasks, *token, address, say_on_standard_error);
        }
        state->membership.emplace(address, *token, step->task, step->tasks);
    }
    job = std::shared_ptr<BatchJob>{new BatchJob{std::move(state)}};
    return job;
}

Membership const& BatchJob::membership() const {
    return *state_->membership;
}

bool BatchJob::is_on_one_host() const {
    return state_->on_one_host;
}

void BatchJob::wait_for_coordinator(std::chrono::milliseconds timeout) const {
    constexpr std::chrono::milliseconds try_again{100};
    auto const deadline = std::chrono::steady_clock::now() + timeout;
    // Another host's listening cannot be waited for, only tried.
    for (;;) {
        try {
            static_cast<void>(connect_to(state_->membership->address, timeout));
            return;
        } catch (SystemError const& error) {
            if (std::chrono::steady_clock::now() >= deadline) {
                throw TimeoutError{std::string{"rank 0 did not come: "} + error.what()};
            }
        }
        ::poll(nullptr, 0, static_cast<int>(try_again.count()));
    }
}

}  // namespace rapidsmpf::bootstrap

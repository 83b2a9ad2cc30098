#include <rapidsmpf/bootstrap/bootstrap.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include <ucxx/api.h>

#include <rapidsmpf/bootstrap/coordinator.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/option_table.hpp>

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::chrono::milliseconds report_timeout{2000};

std::chrono::milliseconds bootstrap_timeout(config::Options const& options) {
    auto const seconds = config::get_seconds(options, "bootstrap_timeout");
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{seconds});
}

UcxxReach reach_of(Membership const& membership) {
    auto const* const on_this_host = std::getenv("RRUN_LOCAL_NRANKS");
    return on_this_host != nullptr && on_this_host == std::to_string(membership.nranks) ? UcxxReach::one_host
                                                                                        : UcxxReach::anywhere;
}

}  // namespace

bool is_running_with_rrun() {
    return std::getenv("RRUN_RANK") != nullptr && std::getenv("RRUN_SOCKET_ADDR") != nullptr;
}

Rank get_rank() {
    return Membership::from_environment().rank;
}

Rank get_nranks() {
    return Membership::from_environment().nranks;
}

std::shared_ptr<UcxxCommunicator> create_ucxx_comm(
    config::Options options, std::shared_ptr<ProgressThread> progress_thread) {
    auto const timeout = bootstrap_timeout(options);
    auto const membership = Membership::from_environment();
    auto coordinator = std::make_unique<Coordinator>(membership, timeout);
    auto worker = make_ucxx_worker(reach_of(membership));
    auto const addresses = coordinator->gather(ucxx_worker_address(*worker), timeout);
    auto comm = UcxxCommunicator::connect(
        membership.rank, addresses, std::move(worker), std::move(coordinator), std::move(options),
        std::move(progress_thread));
    // A rank must not leave again before the others have attached to its memory.
    comm->barrier(timeout);
    return comm;
}

void report_abort(std::string const& reason) noexcept {
    try {
        if (is_running_with_rrun()) {
            Coordinator::report_abort(Membership::from_environment(), reason, report_timeout);
        }
    } catch (std::exception const&) {
        // The launcher sees this process end anyway, if without the reason.
    }
}

}  // namespace rapidsmpf::bootstrap

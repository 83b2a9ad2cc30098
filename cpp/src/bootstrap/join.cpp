#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/bootstrap/detail/hosted.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/logger.hpp>

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::chrono::seconds connect_timeout{30};

std::string coordinator_host(config::Options const& options) {
    auto const host = config::get_text(options, "coordinator_host");
    return host.empty() ? "127.0.0.1" : host;
}

}  // namespace

std::shared_ptr<UcxxCommunicator> join_ucxx_comm(
    Rank nranks, std::shared_ptr<::ucxx::Worker> worker,
    std::optional<UcxxCommunicator::Address> const& root_address, config::Options options,
    std::shared_ptr<ProgressThread> progress_thread) {
    // Shared with the host's thread, which may outlive this call.
    auto const logger = std::make_shared<Logger>(options);
    std::unique_ptr<HostedCoordinator> host;
    JoinLiveness liveness;
    if (!root_address && nranks > 1) {
        host = std::make_unique<HostedCoordinator>(
            nranks, coordinator_host(options), [logger](std::string const& text) { logger->info(text); },
            options);
        liveness.invitation = host->invitation().encode();
    }
    liveness.accept = [&](Rank rank, std::vector<std::uint8_t> const& bytes) -> std::unique_ptr<Liveness> {
        auto const invitation = Invitation::decode(bytes);
        if (!invitation.reaches_this_host()) {
            logger->set_rank(rank);
            logger->warn(
                "the root, on " + invitation.host
                + ", listens only to its own host: this rank will not notice when others die (set the option "
                  "coordinator_host on the root to the address of its network interface)");
            return nullptr;
        }
        return accept_invitation(invitation, rank, nranks, std::move(host), connect_timeout);
    };
    return UcxxCommunicator::join(
        nranks, std::move(worker), root_address, std::move(options), std::move(progress_thread), liveness);
}

}  // namespace rapidsmpf::bootstrap

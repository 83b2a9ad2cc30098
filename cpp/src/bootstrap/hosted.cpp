#include <rapidsmpf/bootstrap/detail/hosted.hpp>

#include <atomic>
#include <utility>

#include <unistd.h>

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>

#include "bootstrap/coordinator.hpp"

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::size_t max_text = 1024;
// How long the host waits for the others' goodbyes.
constexpr std::chrono::milliseconds goodbye{1000};

SocketAddress any_port_of(std::string const& interface) {
    CoordinatorServer::Settings settings;
    settings.listen.host = interface;
    return settings.listen;
}

// The connection of a rank to the coordinator that rank 0 hosts.
class HostedLiveness final : public Liveness {
  public:
    HostedLiveness(
        Invitation const& invitation, Rank rank, Rank nranks, std::unique_ptr<HostedCoordinator> host,
        std::chrono::milliseconds timeout)
        : host_name_{invitation.host},
          host_pid_{invitation.pid},
          host_{std::move(host)},
          coordinator_{std::make_unique<Coordinator>(
              Membership{invitation.address, invitation.token, rank, nranks}, timeout)} {}

    void start(Events events) override {
        auto const host_left = std::make_shared<std::atomic<bool>>(false);
        coordinator_->start(
            Events{
                [failed = std::move(events.failed), host_left, name = host_name_,
                 pid = host_pid_](RankFailure const& failure) {
                    if (failure.rank >= 0) {
                        failed(failure);
                    } else if (!host_left->load()) {
                        failed(
                            RankFailure{
                                0, name, pid,
                                failure.reason.starts_with(silent_coordinator)
                                    ? "it is silent, and hosts the coordinator: " + failure.reason
                                    : "it ended or was killed (the coordinator that it hosts is gone)"});
                    }
                },
                [left = std::move(events.left), host_left](Rank rank) {
                    if (rank == 0) {
                        host_left->store(true);
                    }
                    left(rank);
                }});
    }
    void stop() override { coordinator_->stop(); }
    void abort(std::string const& reason) override { coordinator_->abort(reason); }
    void report_protocol_violation(Rank culprit, std::string const& reason) override {
        coordinator_->report_protocol_violation(culprit, reason);
    }
    void graceful_close(std::chrono::milliseconds patience) override {
        coordinator_->graceful_close(patience);
    }

  private:
    std::string host_name_;
    std::int64_t host_pid_;
    std::unique_ptr<HostedCoordinator> host_;
    std::unique_ptr<Coordinator> coordinator_;  // goes first: it says goodbye to the host
};

}  // namespace

Bytes Invitation::encode() const {
    ByteWriter writer;
    writer.text(address.host, max_text).integer(address.port).raw(token.bytes()).text(host, max_text);
    return writer.integer(pid).take();
}

Invitation Invitation::decode(std::span<std::uint8_t const> bytes) {
    ByteReader reader{bytes};
    auto address_host = reader.text(max_text);
    auto const port = reader.integer<std::uint16_t>();
    auto const token = Token::from_bytes(reader.raw(Token::size));
    auto host = reader.text(max_text);
    auto const pid = reader.integer<std::int64_t>();
    reader.end();
    return Invitation{SocketAddress{std::move(address_host), port}, token, std::move(host), pid};
}

bool Invitation::reaches_this_host() const {
    return !address.host.starts_with("127.") || host == host_name();
}

HostedCoordinator::HostedCoordinator(
    Rank nranks, std::string const& interface, CoordinatorThread::Log log, config::Options const& options)
    : coordinator_{nranks, token_, any_port_of(interface), std::move(log), goodbye, options},
      invitation_{coordinator_.address(), token_, host_name(), ::getpid()} {}

std::unique_ptr<Liveness> accept_invitation(
    Invitation const& invitation, Rank rank, Rank nranks, std::unique_ptr<HostedCoordinator> host,
    std::chrono::milliseconds timeout) {
    return std::make_unique<HostedLiveness>(invitation, rank, nranks, std::move(host), timeout);
}

}  // namespace rapidsmpf::bootstrap

#include <rapidsmpf/bootstrap/hosted.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/coordinator.hpp>
#include <rapidsmpf/core/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/host_name.hpp>

namespace rapidsmpf::bootstrap {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_text = 1024;
// How long the host waits for the others' goodbyes.
constexpr std::chrono::milliseconds farewell{1000};

CoordinatorServer::Events logged_by(HostedCoordinator::Log const& log) {
    CoordinatorServer::Events events;
    events.log = log;
    return events;
}

CoordinatorServer::Settings listening_on(std::string const& interface) {
    CoordinatorServer::Settings settings;
    settings.listen.host = interface;
    return settings;
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
    ~HostedLiveness() override {
        coordinator_.reset();  // before the host: says goodbye to it
        if (owner_ != ::getpid()) {
            // A fork has the object but not the thread: it stays, for the life of the fork.
            static_cast<void>(host_.release());
        }
    }

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
                                "it ended or was killed (the coordinator that it hosts is gone)"});
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
    void convict(Rank culprit, std::string const& reason) override { coordinator_->convict(culprit, reason); }
    void leave(std::chrono::milliseconds patience) override { coordinator_->leave(patience); }

  private:
    std::string host_name_;
    std::int64_t host_pid_;
    pid_t owner_{::getpid()};
    std::unique_ptr<HostedCoordinator> host_;
    std::unique_ptr<Coordinator> coordinator_;
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
    std::array<std::uint8_t, Token::size> token{};
    auto const secret = reader.raw(token.size());
    std::copy(secret.begin(), secret.end(), token.begin());
    auto host = reader.text(max_text);
    auto const pid = reader.integer<std::int64_t>();
    reader.end();
    return Invitation{SocketAddress{std::move(address_host), port}, Token{token}, std::move(host), pid};
}

bool Invitation::reaches_this_host() const {
    return !address.host.starts_with("127.") || host == host_name();
}

HostedCoordinator::HostedCoordinator(Rank nranks, std::string const& interface, Log log)
    : log_{std::move(log)},
      server_{nranks, token_, logged_by(log_), listening_on(interface)},
      invitation_{server_.address(), token_, host_name(), ::getpid()} {
    thread_ = std::thread{[this] { run(); }};
}

HostedCoordinator::~HostedCoordinator() {
    stop_.signal();
    thread_.join();
}

void HostedCoordinator::run() noexcept {
    // Signals are the process's business.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::array waiting{pollfd{server_.fd(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
    std::optional<Clock::time_point> deadline;
    try {
        while (!deadline || (server_.has_connections() && Clock::now() < *deadline)) {
            auto timeout = server_.timeout();
            if (deadline) {
                auto const left = std::max(
                    std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()),
                    std::chrono::milliseconds{0});
                timeout = timeout ? std::min(*timeout, left) : left;
            }
            ::poll(waiting.data(), waiting.size(), timeout ? static_cast<int>(timeout->count()) : -1);
            server_.process();
            if (!deadline && (waiting[1].revents & POLLIN) != 0) {
                deadline = Clock::now() + farewell;
                waiting[1].fd = -1;  // it stays readable
            }
        }
    } catch (std::exception const& error) {
        log_(std::string{"the coordinator of this communicator ends: "} + error.what());
    }
}

std::unique_ptr<Liveness> accept_invitation(
    Invitation const& invitation, Rank rank, Rank nranks, std::unique_ptr<HostedCoordinator> host,
    std::chrono::milliseconds timeout) {
    return std::make_unique<HostedLiveness>(invitation, rank, nranks, std::move(host), timeout);
}

}  // namespace rapidsmpf::bootstrap

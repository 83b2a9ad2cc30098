// A coordinator inside rank 0, for communicators that no launcher of ours started (MPI, Dask, Ray, by hand): so that
// the end of a rank is noticed there as it is under rrun.
//
// Rank 0 hosts a CoordinatorServer on a thread of its own and invites the others by bytes that any channel may
// carry. Each rank, rank 0 too, accepts the invitation and gets the Liveness of its communicator; rank 0's owns the
// host. When rank 0 dies its connections end, which the others report as the failure of rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/token.hpp>

#include "bootstrap/coordinator_thread.hpp"

namespace rapidsmpf::bootstrap {

// Where the coordinator is, the secret that opens it, and who hosts it.
struct Invitation {
    Invitation(SocketAddress address_, Token const& token_, std::string host_, std::int64_t pid_)
        : address{std::move(address_)}, token{token_}, host{std::move(host_)}, pid{pid_} {}
    [[nodiscard]] Bytes encode() const;
    // Throws FormatError.
    [[nodiscard]] static Invitation decode(std::span<std::uint8_t const> bytes);
    // Whether a process of this host can follow it: one to the loopback interface is for the host's own.
    [[nodiscard]] bool reaches_this_host() const;

    SocketAddress address;
    Token token;
    std::string host;
    std::int64_t pid;
};

class HostedCoordinator {
  public:
    // Listens on the interface with this IPv4 address. `log` is called from the host's thread. Its end waits a moment
    // for the others to say goodbye. `options`: liveness_timeout. Throws SystemError, std::invalid_argument.
    HostedCoordinator(
        Rank nranks, std::string const& interface, CoordinatorThread::Log log,
        config::Options const& options);

    [[nodiscard]] Invitation const& invitation() const noexcept { return invitation_; }

  private:
    Token token_{Token::random()};
    CoordinatorThread coordinator_;
    Invitation invitation_;
};

// The liveness of a rank that follows an invitation; `host` is given on rank 0 and null elsewhere. Throws
// SystemError, TimeoutError, or std::runtime_error when refused.
[[nodiscard]] std::unique_ptr<Liveness> accept_invitation(
    Invitation const& invitation, Rank rank, Rank nranks, std::unique_ptr<HostedCoordinator> host,
    std::chrono::milliseconds timeout);

}  // namespace rapidsmpf::bootstrap

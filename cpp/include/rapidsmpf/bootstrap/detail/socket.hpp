// TCP sockets (IPv4). Used by the coordinator's client and server, and by rrun.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf::bootstrap {

// "127.0.0.1:4711" -> IPv4 address and port. Throws std::invalid_argument.
struct SocketAddress {
    SocketAddress(std::string host_, std::uint16_t port_) : host{std::move(host_)}, port{port_} {}
    [[nodiscard]] static SocketAddress parse(std::string const& text);
    [[nodiscard]] std::string str() const { return host + ":" + std::to_string(port); }

    std::string host;
    std::uint16_t port;
};

// The IPv4 address of a host by its name or address. Throws std::runtime_error when there is none.
[[nodiscard]] std::string resolve_host(std::string const& host);
// The address by which this machine reaches another one. Throws SystemError.
[[nodiscard]] std::string local_address_towards(std::string const& ipv4);

// An address of this machine that others may reach: its name's, or that of its first interface which is no loopback, or
// 127.0.0.1 if there is none.
[[nodiscard]] std::string own_address();

// A non-blocking listening socket; with port 0 on one that the kernel picks. Throws SystemError.
[[nodiscard]] FileDescriptor listen_on(SocketAddress const& address);
[[nodiscard]] SocketAddress bound_address(FileDescriptor const& socket);
// A blocking, connected socket without Nagle's delay. Throws SystemError, or TimeoutError.
[[nodiscard]] FileDescriptor connect_to(SocketAddress const& address, std::chrono::milliseconds timeout);
// Makes a connection to another host end when that host is not heard of for 3 seconds (switched off, unplugged). The
// kernels ask and answer, so that a process that is slow or stopped is not taken for a lost one.
void notice_lost_host(FileDescriptor const& socket) noexcept;

}  // namespace rapidsmpf::bootstrap

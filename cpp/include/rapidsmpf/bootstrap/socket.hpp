// TCP sockets. Used by the coordinator's client and server, and by rrun.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <rapidsmpf/core/file_descriptor.hpp>

namespace rapidsmpf::bootstrap {

// "127.0.0.1:4711" -> IPv4 address and port. Throws std::invalid_argument.
struct SocketAddress {
    SocketAddress(std::string host_, std::uint16_t port_) : host{std::move(host_)}, port{port_} {}
    [[nodiscard]] static SocketAddress parse(std::string const& text);
    [[nodiscard]] std::string str() const { return host + ":" + std::to_string(port); }

    std::string host;
    std::uint16_t port;
};

// A non-blocking listening socket on the loopback interface, on a port that the kernel picks.
[[nodiscard]] FileDescriptor listen_on_loopback();
// The same on the interface with this IPv4 address. Throws SystemError, std::invalid_argument.
[[nodiscard]] FileDescriptor listen_on(std::string const& host);
// The IPv4 address of the first interface that is up and no loopback; none: there is no such interface.
[[nodiscard]] std::optional<std::string> network_address();
[[nodiscard]] SocketAddress bound_address(FileDescriptor const& socket);
// A blocking, connected socket without Nagle's delay. Throws SystemError, or TimeoutError.
[[nodiscard]] FileDescriptor connect_to(SocketAddress const& address, std::chrono::milliseconds timeout);
}  // namespace rapidsmpf::bootstrap

#include <rapidsmpf/bootstrap/detail/socket.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {

namespace {

sockaddr_in to_sockaddr(SocketAddress const& address) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(address.port);
    RAPIDSMPF_EXPECTS(
        ::inet_pton(AF_INET, address.host.c_str(), &out.sin_addr) == 1,
        "'" + address.host + "' is not an IPv4 address", std::invalid_argument);
    return out;
}

std::string text_of(in_addr const& address) {
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &address, text.data(), text.size());
    return text.data();
}

}  // namespace

SocketAddress SocketAddress::parse(std::string const& text) {
    auto const colon = text.rfind(':');
    std::uint16_t port = 0;
    bool valid = colon != std::string::npos && colon > 0;
    if (valid) {
        auto const* const end = text.data() + text.size();
        auto const [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
        valid = error == std::errc{} && stop == end && port != 0;
    }
    RAPIDSMPF_EXPECTS(
        valid, "'" + text + "' is not a socket address like 127.0.0.1:4711", std::invalid_argument);
    SocketAddress address{text.substr(0, colon), port};
    static_cast<void>(to_sockaddr(address));
    return address;
}

std::string resolve_host(std::string const& host) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    int const error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> const owner{found, &::freeaddrinfo};
    if (error != 0 || found == nullptr) {
        throw std::runtime_error{
            "the host '" + host + "' has no known IPv4 address: " + ::gai_strerror(error)};
    }
    sockaddr_in address{};
    std::memcpy(&address, found->ai_addr, sizeof(address));
    return text_of(address.sin_addr);
}

std::string local_address_towards(std::string const& ipv4) {
    // Connecting a datagram socket sends nothing; it only asks for the route.
    constexpr std::uint16_t any_port = 9;
    auto const target = to_sockaddr(SocketAddress{ipv4, any_port});
    FileDescriptor const socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!socket.is_open()
        || ::connect(socket.get(), reinterpret_cast<sockaddr const*>(&target), sizeof(target)) != 0) {
        throw SystemError{"there is no way to " + ipv4, errno};
    }
    return bound_address(socket).host;
}

std::string own_address() {
    try {
        if (auto address = resolve_host(host_name()); !address.starts_with("127.")) {
            return address;
        }
    } catch (std::runtime_error const&) {
        // Its name is not known; the interfaces are.
    }
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) {
        return "127.0.0.1";
    }
    std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> const owner{all, &::freeifaddrs};
    for (auto const* entry = all; entry != nullptr; entry = entry->ifa_next) {
        bool const usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
        if (usable && entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET) {
            sockaddr_in address{};
            std::memcpy(&address, entry->ifa_addr, sizeof(address));
            return text_of(address.sin_addr);
        }
    }
    return "127.0.0.1";
}

FileDescriptor listen_on(SocketAddress const& address) {
    FileDescriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!listener.is_open()) {
        throw SystemError{"cannot make the coordinator's socket", errno};
    }
    auto const where = to_sockaddr(address);
    int const on = 1;  // a job may follow another on the same port at once
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(listener.get(), reinterpret_cast<sockaddr const*>(&where), sizeof(where)) != 0
        || ::listen(listener.get(), SOMAXCONN) != 0) {
        throw SystemError{"the coordinator cannot listen on " + address.str(), errno};
    }
    return listener;
}

void notice_lost_host(FileDescriptor const& socket) noexcept {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    constexpr std::uint32_t loopback_net = 127;
    if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0
        || ntohl(peer.sin_addr.s_addr) >> 24 == loopback_net) {
        return;
    }
    int const on = 1;
    int const one_second = 1;
    int const probes = 2;
    unsigned const unanswered_ms = 3000;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &one_second, sizeof(one_second));
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &one_second, sizeof(one_second));
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
}

SocketAddress bound_address(FileDescriptor const& socket) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw SystemError{"cannot ask for the coordinator's port", errno};
    }
    return SocketAddress{text_of(address.sin_addr), ntohs(address.sin_port)};
}

FileDescriptor connect_to(SocketAddress const& address, std::chrono::milliseconds timeout) {
    auto const target = to_sockaddr(address);
    auto const what = "cannot connect to the coordinator at " + address.str();
    FileDescriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!socket.is_open()) {
        throw SystemError{what, errno};
    }
    if (::connect(socket.get(), reinterpret_cast<sockaddr const*>(&target), sizeof(target)) != 0) {
        if (errno != EINPROGRESS) {
            throw SystemError{what, errno};
        }
        auto const deadline = std::chrono::steady_clock::now() + timeout;
        pollfd waiting{socket.get(), POLLOUT, 0};
        int ready = 0;
        do {
            auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(
                deadline - std::chrono::steady_clock::now());
            ready = ::poll(&waiting, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
        } while (ready < 0 && errno == EINTR);
        if (ready == 0) {
            throw TimeoutError{what + " within " + std::to_string(timeout.count()) + " ms"};
        }
        int error = 0;
        socklen_t size = sizeof(error);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) {
            throw SystemError{what, error};
        }
    }
    int const on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    notice_lost_host(socket);
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    return socket;
}

}  // namespace rapidsmpf::bootstrap

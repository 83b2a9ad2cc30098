#include <rapidsmpf/bootstrap/socket.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

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

FileDescriptor listen_on_loopback() {
    return listen_on("127.0.0.1");
}

std::optional<std::string> network_address() {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) {
        return std::nullopt;
    }
    std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> const interfaces{first, &::freeifaddrs};
    for (auto const* entry = first; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET
            && (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0) {
            std::array<char, INET_ADDRSTRLEN> text{};
            auto const* const address = reinterpret_cast<sockaddr_in const*>(entry->ifa_addr);
            ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
            return std::string{text.data()};
        }
    }
    return std::nullopt;
}

FileDescriptor listen_on(std::string const& host) {
    FileDescriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!listener.is_open()) {
        throw SystemError{"cannot make the coordinator's socket", errno};
    }
    auto const address = to_sockaddr(SocketAddress{host, 0});
    if (::bind(listener.get(), reinterpret_cast<sockaddr const*>(&address), sizeof(address)) != 0
        || ::listen(listener.get(), SOMAXCONN) != 0) {
        throw SystemError{"the coordinator cannot listen on " + host, errno};
    }
    return listener;
}

SocketAddress bound_address(FileDescriptor const& socket) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw SystemError{"cannot ask for the coordinator's port", errno};
    }
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
    return SocketAddress{text.data(), ntohs(address.sin_port)};
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
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    return socket;
}

}  // namespace rapidsmpf::bootstrap

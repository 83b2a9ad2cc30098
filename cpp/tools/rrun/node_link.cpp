#include "node_link.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace rapidsmpf::rrun {

namespace {

constexpr std::size_t largest_frame = std::size_t{64} << 10;

}  // namespace

NodeLink::NodeLink(FileDescriptor socket) : socket_{std::move(socket)}, in_{largest_frame} {
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
}

short NodeLink::events() const noexcept {
    return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void NodeLink::send(bootstrap::Bytes const& message) {
    out_.insert(out_.end(), message.begin(), message.end());
    flush();
}

void NodeLink::flush() {
    while (!out_.empty()) {
        auto const sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                out_.clear();  // its end is seen where it is read from
            }
            return;
        }
        out_.erase(out_.begin(), out_.begin() + sent);
    }
}

bool NodeLink::exchange(std::function<void(bootstrap::Frame const&)> const& handle) {
    flush();
    std::array<std::uint8_t, 4096> bytes;  // NOLINT: filled by recv
    for (;;) {
        auto const got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        }
        if (got <= 0) {
            return false;
        }
        in_.append(std::span{bytes}.first(static_cast<std::size_t>(got)));
        while (auto const frame = in_.next()) {
            handle(*frame);
        }
    }
}

}  // namespace rapidsmpf::rrun

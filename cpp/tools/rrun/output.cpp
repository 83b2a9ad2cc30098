#include "output.hpp"

#include <algorithm>
#include <cerrno>

#include <limits.h>
#include <poll.h>
#include <unistd.h>

namespace rapidsmpf::rrun {

std::string LineTagger::append(std::string_view bytes) {
    std::string tagged;
    while (!bytes.empty()) {
        auto const end = bytes.find('\n');
        auto const room = longest_line - line_.size();
        if (end == std::string_view::npos && bytes.size() <= room) {
            line_ += bytes;
            break;
        }
        auto const taken = std::min(end, room);
        tagged += tag_;
        tagged += line_;
        tagged += bytes.substr(0, taken);
        tagged += '\n';
        line_.clear();
        bytes.remove_prefix(taken == end ? taken + 1 : taken);
    }
    return tagged;
}

std::string LineTagger::finish() {
    if (line_.empty()) {
        return {};
    }
    auto tagged = tag_ + line_ + '\n';
    line_.clear();
    return tagged;
}

void OutputSink::add(std::string_view bytes) {
    if (!broken_) {
        waiting_ += bytes;
    }
}

void OutputSink::write_some() {
    while (has_waiting()) {
        // A pipe that polls as writable takes PIPE_BUF bytes without blocking; its mode is not ours to change,
        // because other processes share it.
        pollfd ready{fd_, POLLOUT, 0};
        if (::poll(&ready, 1, 0) <= 0) {
            return;
        }
        auto const size = std::min<std::size_t>(waiting_.size() - done_, PIPE_BUF);
        auto const written = ::write(fd_, waiting_.data() + done_, size);
        if (written < 0) {
            if (errno == EINTR || errno == EAGAIN) {
                return;
            }
            broken_ = true;
            waiting_.clear();
            done_ = 0;
            return;
        }
        done_ += static_cast<std::size_t>(written);
    }
    waiting_.clear();
    done_ = 0;
}

}  // namespace rapidsmpf::rrun

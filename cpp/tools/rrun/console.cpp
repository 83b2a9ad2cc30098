#include "console.hpp"

#include <array>
#include <cerrno>

#include <unistd.h>

namespace rapidsmpf::rrun {

Console::Console() : stdout_{STDOUT_FILENO}, stderr_{STDERR_FILENO} {}

void Console::add_stream(FileDescriptor from, std::string tag, Target target) {
    streams_.emplace_back(std::move(from), std::move(tag), target == Target::out ? stdout_ : stderr_);
}

void Console::say(std::string const& message) {
    stderr_.add("rrun: " + message + "\n");
    stderr_.write_some();
}

void Console::add_to_poll(std::vector<pollfd>& fds) {
    for (auto* const sink : {&stdout_, &stderr_}) {
        fds.push_back({sink->has_waiting() ? sink->fd() : -1, POLLOUT, 0});
    }
    first_polled_ = fds.size();
    for (auto& stream : streams_) {
        bool const wanted = stream.from.is_open() && !stream.to->is_full();
        fds.push_back({wanted ? stream.from.get() : -1, POLLIN, 0});
    }
}

void Console::pump(std::vector<pollfd> const& fds) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (fds[first_polled_ + i].revents != 0) {
            read(streams_[i]);
        }
    }
    stdout_.write_some();
    stderr_.write_some();
}

// Takes what is there. Closes the stream at its end, or when no process reads rrun's output any more: the writer then gets
// SIGPIPE, as it would without rrun.
void Console::read(Stream& stream) {
    std::array<char, 65536> bytes;  // NOLINT: filled by read
    while (!stream.to->is_full()) {
        auto const got = ::read(stream.from.get(), bytes.data(), bytes.size());
        if (got > 0) {
            stream.to->add(stream.tagger.append({bytes.data(), static_cast<std::size_t>(got)}));
            continue;
        }
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno == EAGAIN) {
            break;
        }
        stream.to->add(stream.tagger.finish());
        stream.from.reset();
        return;
    }
    if (stream.to->is_broken()) {
        stream.from.reset();
    }
}

void Console::finish(Signals const& signals) {
    bool more = true;
    while (more) {
        more = false;
        for (auto& stream : streams_) {
            if (stream.from.is_open()) {
                read(stream);
                more = more || (stream.from.is_open() && stream.to->is_full());
            }
        }
        if (!drain(signals)) {
            return;
        }
    }
    for (auto& stream : streams_) {
        stream.to->add(stream.tagger.finish());
    }
    drain(signals);
}

// Waits until rrun's own output is written; gives up on a signal.
bool Console::drain(Signals const& signals) {
    while (stdout_.has_waiting() || stderr_.has_waiting()) {
        stdout_.write_some();
        stderr_.write_some();
        std::array waiting{
            pollfd{signals.fd(), POLLIN, 0}, pollfd{stdout_.has_waiting() ? stdout_.fd() : -1, POLLOUT, 0},
            pollfd{stderr_.has_waiting() ? stderr_.fd() : -1, POLLOUT, 0}};
        if (waiting[1].fd < 0 && waiting[2].fd < 0) {
            break;
        }
        ::poll(waiting.data(), waiting.size(), -1);
        while (auto const signal = signals.next()) {
            if (*signal != SIGCHLD && *signal != SIGCONT) {
                return false;
            }
        }
    }
    return true;
}

}  // namespace rapidsmpf::rrun

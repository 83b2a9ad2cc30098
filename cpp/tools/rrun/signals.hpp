// The signals of rrun, read from a descriptor.
#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include <sys/signalfd.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

inline constexpr std::array passed_on{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};

// Blocks the signals that rrun handles, and makes them readable; undone at the end of its life.
class Signals {
  public:
    Signals() {
        sigset_t handled;
        ::sigemptyset(&handled);
        ::sigaddset(&handled, SIGCHLD);
        ::sigaddset(&handled, SIGTSTP);
        for (int const signal : passed_on) {
            ::sigaddset(&handled, signal);
        }
        ::sigprocmask(SIG_BLOCK, &handled, &before_);
        fd_ = FileDescriptor{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
        if (!fd_.is_open()) {
            throw SystemError{"cannot wait for signals", errno};
        }
        ::signal(SIGPIPE, SIG_IGN);  // a write says EPIPE instead
        ::signal(SIGTTOU, SIG_IGN);
    }
    ~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
    Signals(Signals const&) = delete;
    Signals& operator=(Signals const&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] sigset_t const& before() const noexcept { return before_; }
    [[nodiscard]] std::optional<int> next() const {
        signalfd_siginfo info{};
        if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) {
            return std::nullopt;
        }
        return static_cast<int>(info.ssi_signo);
    }

  private:
    sigset_t before_{};
    FileDescriptor fd_;
};

}  // namespace rapidsmpf::rrun

#include "reaper.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

namespace {

constexpr pid_t all_is_well = 0;

[[noreturn]] void keep_watch(int pipe) {
    ::prctl(PR_SET_NAME, "rrun-reaper", 0, 0, 0);
    // A terminal's signals are not for it, and nothing but SIGKILL may end it.
    ::setsid();
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    std::vector<pid_t> groups;
    for (;;) {
        pid_t group = 0;
        auto const got = ::read(pipe, &group, sizeof(group));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got != sizeof(group)) {
            break;  // rrun is dead
        }
        if (group == all_is_well) {
            ::_exit(0);
        }
        groups.push_back(group);
    }
    for (auto const group : groups) {
        ::kill(-group, SIGKILL);
    }
    ::_exit(0);
}

}  // namespace

Reaper::Reaper() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw SystemError{"cannot make a pipe", errno};
    }
    FileDescriptor reading{ends[0]};
    pipe_ = FileDescriptor{ends[1]};
    pid_ = ::fork();
    if (pid_ < 0) {
        throw SystemError{"cannot start the reaper process", errno};
    }
    if (pid_ == 0) {
        pipe_.reset();
        keep_watch(reading.get());
    }
}

Reaper::~Reaper() {
    // If someone killed the reaper, there is no process to tell.
    [[maybe_unused]] auto const written = ::write(pipe_.get(), &all_is_well, sizeof(all_is_well));
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace rapidsmpf::rrun

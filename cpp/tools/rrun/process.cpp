#include "process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>

namespace rapidsmpf::rrun {

namespace {

struct Pipe {
    FileDescriptor reading;
    FileDescriptor writing;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw SystemError{"cannot make a pipe", errno};
    }
    return Pipe{FileDescriptor{ends[0]}, FileDescriptor{ends[1]}};
}

std::vector<char*> pointers_to(std::vector<std::string> const& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (auto const& text : texts) {
        pointers.push_back(const_cast<char*>(text.c_str()));  // exec's signature; it does not write
    }
    pointers.push_back(nullptr);
    return pointers;
}

// What the child needs, made before fork: between fork and exec nothing may allocate.
struct Prepared {
    std::vector<char*> arguments;
    std::vector<char*> environment;
    pid_t parent;
};

// In the child. Returns only when it fails, with the error number.
int become(Launch const& launch, Prepared& prepared, int in, int out, int err) noexcept {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != prepared.parent) {
        ::_exit(128 + SIGKILL);  // rrun died before the line above
    }
    if (launch.reaper >= 0) {
        // If someone killed the reaper, this process is merely less well guarded.
        pid_t const group = ::getpid();
        [[maybe_unused]] auto const written = ::write(launch.reaper, &group, sizeof(group));
    }
    // A share that cannot be bound to is no reason not to run.
    static_cast<void>(topology::bind_to_cpus(launch.cpus));
    static_cast<void>(topology::prefer_memory_of(launch.memory));
    if (launch.standard_input == Stdin::none) {
        int const null = ::open("/dev/null", O_RDONLY);
        if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) {
            return errno;
        }
        if (null != STDIN_FILENO) {
            ::close(null);
        }
    }
    if (in >= 0 && ::dup2(in, STDIN_FILENO) < 0) {
        return errno;
    }
    if ((out >= 0 && ::dup2(out, STDOUT_FILENO) < 0) || (err >= 0 && ::dup2(err, STDERR_FILENO) < 0)) {
        return errno;
    }
    for (int const signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE, SIGTTOU}) {
        ::signal(signal, SIG_DFL);
    }
    ::sigprocmask(SIG_SETMASK, &launch.signal_mask, nullptr);
    environ = prepared.environment.data();  // PATH is looked up in the rank's own
    ::execvp(prepared.arguments[0], prepared.arguments.data());
    return errno;
}

}  // namespace

Environment::Environment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
        entries_.emplace_back(*entry);
    }
}

void Environment::set(std::string const& name, std::string const& value) {
    auto const prefix = name + "=";
    std::erase_if(entries_, [&](std::string const& entry) { return entry.starts_with(prefix); });
    entries_.push_back(prefix + value);
}

bool Environment::contains(std::string const& name) const {
    auto const prefix = name + "=";
    return std::any_of(entries_.begin(), entries_.end(), [&](std::string const& entry) {
        return entry.starts_with(prefix);
    });
}

Started start_process(Launch const& launch) {
    Prepared prepared{pointers_to(launch.command), pointers_to(launch.environment.entries()), ::getpid()};
    auto exec_error = make_pipe();  // closes by itself when exec succeeds
    Pipe out;
    Pipe err;
    if (launch.capture == Capture::yes) {
        out = make_pipe();
        err = make_pipe();
    }
    Pipe in;
    if (launch.standard_input == Stdin::pipe) {
        in = make_pipe();
    }
    pid_t const pid = ::fork();
    if (pid < 0) {
        throw SystemError{"cannot start a process", errno};
    }
    if (pid == 0) {
        int const error = become(launch, prepared, in.reading.get(), out.writing.get(), err.writing.get());
        [[maybe_unused]] auto const written = ::write(exec_error.writing.get(), &error, sizeof(error));
        ::_exit(127);
    }
    ::setpgid(pid, pid);  // as the child does: either may come first
    exec_error.writing.reset();
    int error = 0;
    ssize_t got = 0;
    do {
        got = ::read(exec_error.reading.get(), &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
    if (got == sizeof(error)) {
        while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
        auto const& program = launch.command.front();
        if (error == ENOENT) {
            bool const is_path = program.find('/') != std::string::npos;
            throw ExecError{
                is_path ? "no such program (or its interpreter is missing): " + program
                        : "command not found: " + program,
                127};
        }
        throw ExecError{"cannot execute " + program + ": " + std::strerror(error), 126};
    }
    for (auto* ours : {&out.reading, &err.reading, &in.writing}) {
        if (ours->is_open()) {
            ::fcntl(ours->get(), F_SETFL, O_NONBLOCK);
        }
    }
    Started started;
    started.pid = pid;
    started.out = std::move(out.reading);
    started.err = std::move(err.reading);
    started.in = std::move(in.writing);
    return started;
}

ExitStatus::ExitStatus(int code, int status) noexcept : signal_{code != CLD_EXITED}, value_{status} {}

std::string ExitStatus::str() const {
    return signal_ ? "was killed by " + signal_name(value_) : "exited with code " + std::to_string(value_);
}

std::string signal_name(int signal) {
    auto const* const name = ::sigabbrev_np(signal);
    return name != nullptr ? "SIG" + std::string{name} : "signal " + std::to_string(signal);
}

}  // namespace rapidsmpf::rrun

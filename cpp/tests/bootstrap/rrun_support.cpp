#include "bootstrap/rrun_support.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::test {

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::array<FileDescriptor, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw SystemError{"pipe", errno};
    }
    return {FileDescriptor{ends[0]}, FileDescriptor{ends[1]}};
}

}  // namespace

Child::Child(
    std::vector<std::string> const& command, std::vector<std::string> const& environment,
    std::string const& input) {
    auto in = make_pipe();
    auto out = make_pipe();
    auto err = make_pipe();
    std::vector<char*> arguments;
    for (auto const& argument : command) {
        arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) {
        throw SystemError{"fork", errno};
    }
    if (pid_ == 0) {
        ::dup2(in[0].get(), STDIN_FILENO);
        ::dup2(out[1].get(), STDOUT_FILENO);
        ::dup2(err[1].get(), STDERR_FILENO);
        for (auto const& entry : environment) {
            ::putenv(const_cast<char*>(entry.c_str()));
        }
        ::execv(arguments[0], arguments.data());
        ::_exit(99);
    }
    [[maybe_unused]] auto const written = ::write(in[1].get(), input.data(), input.size());
    out_ = std::move(out[0]);
    err_ = std::move(err[0]);
}

Child::~Child() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
}

bool Child::read_some(double seconds) {
    std::array waiting{pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
    if (!out_.is_open() && !err_.is_open()) {
        return false;
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(seconds * 1000));
    std::array<char, 4096> bytes{};
    for (auto const& [fd, into, ready] :
         {std::tuple{&out_, &outcome_.out, waiting[0].revents},
          std::tuple{&err_, &outcome_.err, waiting[1].revents}}) {
        if (ready == 0) {
            continue;
        }
        auto const got = ::read(fd->get(), bytes.data(), bytes.size());
        if (got > 0) {
            into->append(bytes.data(), static_cast<std::size_t>(got));
        } else {
            fd->reset();
        }
    }
    return true;
}

void Child::read_until(std::string const& text, int times) {
    auto const deadline = now() + 60;
    auto const found = [&] {
        int count = 0;
        for (auto at = outcome_.out.find(text); at != std::string::npos;
             at = outcome_.out.find(text, at + 1)) {
            ++count;
        }
        return count >= times;
    };
    while (!found()) {
        if (now() > deadline || !read_some(1)) {
            throw std::runtime_error{"no '" + text + "' in: " + outcome_.out + outcome_.err};
        }
    }
}

Outcome Child::wait() {
    auto const deadline = now() + 120;
    while (read_some(1)) {
        if (now() > deadline) {
            throw std::runtime_error{"still running: " + outcome_.out + outcome_.err};
        }
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    outcome_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome_;
}

std::vector<std::string> rrun_command(std::vector<std::string> const& arguments) {
    std::vector<std::string> command{RAPIDSMPF_TEST_RRUN};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

Outcome run_rrun(
    std::vector<std::string> arguments, std::vector<std::string> const& environment,
    std::string const& input) {
    Child child{rrun_command(arguments), environment, input};
    return child.wait();
}

std::vector<std::string> sorted_lines(std::string const& text) {
    std::vector<std::string> lines;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    return lines;
}

bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

bool has_ended(pid_t pid) {
    FileDescriptor const process{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
    if (!process.is_open()) {
        return errno == ESRCH;
    }
    pollfd ended{process.get(), POLLIN, 0};
    return ::poll(&ended, 1, 60'000) == 1;
}

}  // namespace rapidsmpf::test

// Starting one rank's process, and saying in words how it ended.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/topology/detail/memory_policy.hpp>

namespace rapidsmpf::rrun {

// The program cannot be executed.
class ExecError : public std::runtime_error {
  public:
    ExecError(std::string const& message, int exit_code)
        : std::runtime_error{message}, exit_code_{exit_code} {}
    // 127 when it does not exist, 126 otherwise, as shells do.
    [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

  private:
    int exit_code_;
};

// What rrun's own environment becomes for a rank.
class Environment {
  public:
    // A copy of this process's.
    Environment();
    void set(std::string const& name, std::string const& value);
    [[nodiscard]] bool contains(std::string const& name) const;
    [[nodiscard]] std::vector<std::string> const& entries() const noexcept { return entries_; }

  private:
    std::vector<std::string> entries_;  // "NAME=value"
};

enum class Capture : bool { no = false, yes = true };
enum class Stdin : std::uint8_t { inherit, none, pipe };

struct Launch {
    std::vector<std::string> command;
    Environment environment;
    std::vector<int> cpus;      // empty: leave as it is
    topology::NodeMask memory;  // empty: leave as it is
    Capture capture{Capture::no};
    Stdin standard_input{Stdin::none};
    sigset_t signal_mask{};  // what the process starts with
    int reaper{-1};          // Reaper::fd(): told of the process before its program runs
};

struct Started {
    pid_t pid{-1};  // and the id of its process group
    // The reading ends, non-blocking, when captured.
    FileDescriptor out;
    FileDescriptor err;
    // The writing end of its standard input, non-blocking, when that is a pipe.
    FileDescriptor in;
};

// Starts a process in a group of its own that is killed when this one dies; returns when its program runs.
// Throws ExecError when the program cannot be executed, SystemError when there can be no new process.
[[nodiscard]] Started start_process(Launch const& launch);

// How a process ended.
class ExitStatus {
  public:
    // From waitid(): si_code and si_status.
    ExitStatus(int code, int status) noexcept;
    [[nodiscard]] bool is_success() const noexcept { return !signal_ && value_ == 0; }
    // The exit code, or 128 + the signal's number.
    [[nodiscard]] int exit_code() const noexcept { return signal_ ? 128 + value_ : value_; }
    // "exited with code 3", "was killed by SIGKILL".
    [[nodiscard]] std::string str() const;

  private:
    bool signal_;
    int value_;
};

// "SIGKILL".
[[nodiscard]] std::string signal_name(int signal);

}  // namespace rapidsmpf::rrun

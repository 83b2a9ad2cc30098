// Runs rrun as a child process and collects what it does.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf::test {

struct Outcome {
    int exit_code{-1};  // 128 + the signal's number
    std::string out;
    std::string err;
};

// A running program whose output is collected.
class Child {
  public:
    // `environment`: "NAME=value", added to this process's.
    explicit Child(
        std::vector<std::string> const& command, std::vector<std::string> const& environment = {},
        std::string const& input = "");
    // Kills it if it still runs.
    ~Child();
    Child(Child const&) = delete;
    Child& operator=(Child const&) = delete;

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    // Collects output until `text` is in its standard output `times` times; throws std::runtime_error when it ends,
    // or 60 seconds pass, before that.
    void read_until(std::string const& text, int times = 1);
    [[nodiscard]] std::string const& out() const noexcept { return outcome_.out; }
    [[nodiscard]] std::string const& err() const noexcept { return outcome_.err; }
    // Collects output until its end, and waits for it; kills it and throws after 120 seconds.
    [[nodiscard]] Outcome wait();

  private:
    // Returns whether there can be more.
    bool read_some(double seconds);

    pid_t pid_{-1};
    FileDescriptor out_;
    FileDescriptor err_;
    Outcome outcome_;
};

// rrun with these arguments.
[[nodiscard]] Outcome run_rrun(
    std::vector<std::string> arguments, std::vector<std::string> const& environment = {},
    std::string const& input = "");
[[nodiscard]] std::vector<std::string> rrun_command(std::vector<std::string> const& arguments);

[[nodiscard]] std::vector<std::string> sorted_lines(std::string const& text);
[[nodiscard]] bool contains(std::string const& text, std::string const& part);

// Waits until a process that is not a child has ended; false after 60 seconds.
[[nodiscard]] bool has_ended(pid_t pid);

}  // namespace rapidsmpf::test

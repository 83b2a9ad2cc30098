// Jobs in which one rank comes to a bad end, as coll/shuffle_victim.hpp has it, under one launcher or another: every
// survivor raises the named error in time, and nothing is left.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <regex>
#include <string>
#include <vector>

#include <sys/types.h>

#include "bootstrap/rrun_support.hpp"

namespace rapidsmpf::test {

struct FailureCase {
    std::string when;
    std::string how;
    int victim;
    int nranks;
    // Whether the others have a wait with a short timeout, and give up.
    [[nodiscard]] bool gives_up() const { return how == "stop" || how == "absent"; }
    // Whether this rank hears of the failure and closes its communicator.
    [[nodiscard]] bool is_told(int rank) const { return rank != victim || how == "malformed"; }
    // For GoogleTest.
    [[nodiscard]] std::string name() const;
};
void PrintTo(FailureCase const& c, std::ostream* out);

// What the survivors are told where rank 0 takes the connections of the others: a regular expression.
[[nodiscard]] std::string reason_from_rank_zero(FailureCase const& c);

// Each moment and manner, on `nranks` ranks.
[[nodiscard]] std::vector<FailureCase> failure_cases(int nranks);

// A job whose shared memory and spill files have places of their own, so that other jobs do not matter.
class FailingJob {
  public:
    // `launcher`: the command line up to the arguments of the victim's program; `more`: what comes behind those.
    FailingJob(
        FailureCase failure, std::vector<std::string> const& launcher,
        std::vector<std::string> environment = {}, std::vector<std::string> const& more = {});
    ~FailingJob();
    FailingJob(FailingJob const&) = delete;
    FailingJob& operator=(FailingJob const&) = delete;

    // Of the test that runs; it goes with the job.
    [[nodiscard]] static std::filesystem::path folder();
    [[nodiscard]] static std::filesystem::path shared_memory() { return folder() / "shm"; }

    [[nodiscard]] Child& launcher() noexcept { return launcher_; }
    // Waits for the end of all others, and ends the victim, where no launcher does that.
    void end_victim();
    Outcome const& wait();
    // `reason`: a regular expression for what the survivors are told.
    void expect_survivors_raise(std::string const& reason) const;
    void expect_all_ended() const;
    // Processes, shared memory, spill files.
    void expect_nothing_left() const;

  private:
    // Of the ranks.
    [[nodiscard]] std::vector<pid_t> pids() const;
    [[nodiscard]] std::vector<std::smatch> matches(std::string const& pattern) const;

    FailureCase failure_;
    Child launcher_;
    Outcome outcome_;
};

}  // namespace rapidsmpf::test

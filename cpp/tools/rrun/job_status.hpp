// How a job ends: which rank failed first, what is said about it, and the exit code.
#pragma once

#include <cstdint>
#include <string>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/server.hpp>

#include "console.hpp"

namespace rapidsmpf::rrun {

enum class OthersAlive : bool { no = false, yes = true };

class JobStatus {
  public:
    JobStatus(bootstrap::CoordinatorServer& server, Console& console) : server_{server}, console_{console} {}

    // Tells the coordinator; the first bad end is reported to the user, with one line.
    void rank_ended(bootstrap::RankEnded const& end, OthersAlive others);
    // Ranks are lost with their host, or could not be started. `subject` begins the line: "host node2".
    void host_failed(
        std::int32_t first_rank, std::string const& host, std::string const& reason, std::int32_t exit_code);

    [[nodiscard]] bool failed() const noexcept { return failed_; }
    [[nodiscard]] std::int32_t exit_code() const noexcept { return exit_code_; }
    // The user wants it to end: whatever comes, it is not a success.
    void give_up(std::int32_t exit_code);

  private:
    bootstrap::CoordinatorServer& server_;
    Console& console_;
    bool failed_{false};
    bool culprit_known_{false};
    std::int32_t exit_code_{0};
};

}  // namespace rapidsmpf::rrun

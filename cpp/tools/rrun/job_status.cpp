#include "job_status.hpp"

#include <utility>

#include "ranks.hpp"

namespace rapidsmpf::rrun {

using bootstrap::Failure;

void JobStatus::rank_ended(bootstrap::RankEnded const& end, OthersAlive others) {
    auto const failure_for = [&](std::string reason) {
        return Failure{end.rank, end.host, end.pid, std::move(reason)};
    };
    if (end.exit_code == 0) {
        server_.rank_ended(failure_for("its process exited with code 0 and left its communicator open"));
        return;
    }
    // Its last words, and its goodbye to the coordinator, may have come in the meantime.
    server_.process();
    server_.fail(failure_for("its process " + end.how));
    // The exit code is that of the rank at fault, if it failed at all, else of the first that ended badly.
    auto const& failure = *server_.failure();
    bool const at_fault = failure.rank == end.rank;
    if (!failed_ || (at_fault && !culprit_known_)) {
        exit_code_ = end.exit_code;
        culprit_known_ = at_fault;
    }
    if (failed_) {
        return;
    }
    failed_ = true;
    // "its process was killed by SIGKILL" and other reasons that are known from the process itself are better said
    // directly.
    auto text = at_fault && failure.reason == "its process " + end.how
                    ? describe_rank(end.rank, end.pid, end.host) + " " + end.how
                    : describe_rank(failure.rank, failure.pid, failure.host) + " failed: " + failure.reason;
    if (others == OthersAlive::yes) {
        text += "; ending the other ranks";
    }
    console_.say(text);
}

void JobStatus::host_failed(
    std::int32_t first_rank, std::string const& host, std::string const& reason, std::int32_t exit_code) {
    server_.process();
    server_.fail(Failure{first_rank, host, 0, "host " + host + ": " + reason});
    if (failed_) {
        return;
    }
    failed_ = true;
    culprit_known_ = true;
    exit_code_ = exit_code;
    console_.say("host " + host + ": " + reason + "; ending the job");
}

void JobStatus::give_up(std::int32_t exit_code) {
    if (!failed_) {
        failed_ = true;
        exit_code_ = exit_code;
    }
}

}  // namespace rapidsmpf::rrun

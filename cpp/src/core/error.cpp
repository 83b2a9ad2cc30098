#include <rapidsmpf/core/error.hpp>

#include <cstring>

namespace rapidsmpf {

SystemError::SystemError(std::string const& what, int error_number)
    : std::runtime_error{what + ": " + std::strerror(error_number)}, error_number_{error_number} {}

namespace {
std::string describe_failure(
    std::int32_t rank, std::string const& host, std::int64_t pid, std::string const& reason) {
    // No rank: the coordinator itself is gone.
    std::string text = rank < 0 ? "the launcher" : "rank " + std::to_string(rank);
    if (pid != 0) {
        text += " (pid " + std::to_string(pid) + (host.empty() ? ")" : " on " + host + ")");
    }
    return text + " failed: " + reason;
}
}  // namespace

RankFailedError::RankFailedError(std::int32_t rank, std::string host, std::int64_t pid, std::string reason)
    : std::runtime_error{describe_failure(rank, host, pid, reason)},
      rank_{rank},
      host_{std::move(host)},
      pid_{pid},
      reason_{std::move(reason)} {}

}  // namespace rapidsmpf

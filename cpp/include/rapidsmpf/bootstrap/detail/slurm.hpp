// What Slurm says in the environment about the step that this process belongs to, and how the processes of a job find
// the first one's address and secret without a process manager that carries them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::bootstrap {

struct SlurmStep {
    std::int32_t task{0};   // SLURM_PROCID
    std::int32_t tasks{1};  // SLURM_NTASKS
    std::int32_t local_task{0};
    std::int32_t tasks_on_host{1};
    std::string first_host;
    std::uint16_t port{0};  // one that all tasks compute alike from the job's and the step's number

    // None when this process is not a task of Slurm. Throws std::runtime_error when the variables contradict each other.
    [[nodiscard]] static std::optional<SlurmStep> from_environment();
};

// "node[007-012,20],login1" -> "node007".
[[nodiscard]] std::string first_of_hosts(std::string const& hosts);
// "2(x3),1" -> what the host of this number has; 1 when it does not say.
[[nodiscard]] std::int32_t tasks_of_host(std::string const& tasks_per_host, std::int32_t host);

// The secret of a job whose launcher hands none to its processes: from the file, or from the variable RRUN_TOKEN. None when there
// is neither. Throws std::runtime_error when the file cannot be read or others may read it, FormatError when it holds
// something else.
[[nodiscard]] std::optional<Token> find_token(std::string const& file);

}  // namespace rapidsmpf::bootstrap

// A launch specification: what one rrun tells another that it starts on a host. It goes through that one's standard input,
// because a command line and an environment can be read by others, and the job's token is part of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>

#include "placement.hpp"

namespace rapidsmpf::rrun {

struct LaunchSpec {
    std::string address;  // of the coordinator
    std::string token;
    std::int32_t node_rank{0};
    std::int32_t nnodes{0};
    LocalSeats seats;
    std::string directory;
    std::vector<std::string> environment;  // "NAME=value"
    std::vector<std::string> variables;    // the same, of -x
    std::vector<std::string> arguments;    // of the command line

    [[nodiscard]] bootstrap::Bytes encode() const;
    // Reads them from a descriptor, up to their end and no further. Throws std::runtime_error or FormatError.
    [[nodiscard]] static LaunchSpec read_from(int fd);
};

// The variables of this process that ranks on other hosts get too: those of the programs' search paths and of the
// libraries in use.
[[nodiscard]] std::vector<std::string> environment_for_other_hosts();

}  // namespace rapidsmpf::rrun

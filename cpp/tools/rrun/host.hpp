// One of the hosts of a job, as the head sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/core/detail/file_descriptor.hpp>

#include "launch_spec.hpp"
#include "options.hpp"
#include "output.hpp"
#include "placement.hpp"
#include "process.hpp"

namespace rapidsmpf::rrun {

// here: an rrun that this one starts directly. remote: by ssh. awaited: another launcher starts it.
enum class HostKind : std::uint8_t { here, remote, awaited };

struct Host {
    HostKind kind{HostKind::awaited};
    std::string name;  // empty while it is awaited
    LocalSeats seats;  // count 0 while it is awaited

    // Of the process that this rrun started for it.
    pid_t pid{-1};
    FileDescriptor spec_pipe;
    std::optional<OutputSink> spec;
    std::optional<ExitStatus> process_ended;

    std::optional<bootstrap::CoordinatorServer::NodeId> node;  // its connection
    std::int32_t first_rank{0};
    std::set<std::int32_t> running;  // ranks
    bool given_up{false};            // lost, or could not start
};

// Whether the name means this machine.
[[nodiscard]] bool is_here(std::string const& host);
// The hosts of --hosts with their seats: a host that is named twice is shared between its entries.
[[nodiscard]] std::vector<Host> hosts_of(std::vector<HostSpec> const& specs);
// What starts rrun for the host; it reads its launch specification on its standard input.
[[nodiscard]] std::vector<std::string> command_for(Host const& host, CommandLine const& command_line);

}  // namespace rapidsmpf::rrun

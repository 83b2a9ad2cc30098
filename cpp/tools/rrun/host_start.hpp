// How the head of a job starts rrun on its hosts, and where it listens for them.
#pragma once

#include <string>
#include <vector>

#include "console.hpp"
#include "host.hpp"
#include "launch_spec.hpp"
#include "options.hpp"
#include "process.hpp"

namespace rapidsmpf::rrun {

// The address of this machine on the way to these hosts.
[[nodiscard]] std::string address_towards(std::vector<Host> const& hosts);

// Starts rrun for a host that is not awaited, and begins to write its launch specification; what it prints goes to the
// console. `spec` says where the head is and which host this one is; `launch` has the signal mask and the reaper.
void start_host(
    Host& host, LaunchSpec spec, Launch launch, CommandLine const& command_line, Console& console);

}  // namespace rapidsmpf::rrun

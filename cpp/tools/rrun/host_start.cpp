#include "host_start.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>

namespace rapidsmpf::rrun {

std::string address_towards(std::vector<Host> const& hosts) {
    auto const other = std::find_if(
        hosts.begin(), hosts.end(), [](Host const& host) { return host.kind == HostKind::remote; });
    if (other == hosts.end()) {
        return "127.0.0.1";
    }
    try {
        return bootstrap::local_address_towards(bootstrap::resolve_host(other->name));
    } catch (std::exception const&) {
        return bootstrap::own_address();  // a name that only ssh knows
    }
}

void start_host(
    Host& host, LaunchSpec spec, Launch launch, CommandLine const& command_line, Console& console) {
    spec.seats = host.seats;
    spec.arguments = arguments_for_node(command_line, host.seats.count);
    for (auto const& [name, value] : command_line.environment) {
        spec.variables.push_back(name + "=" + value);
    }
    if (host.kind == HostKind::remote) {
        spec.environment = environment_for_other_hosts();
        spec.directory = std::filesystem::current_path().string();
    }
    launch.command = command_for(host, command_line);
    launch.capture = Capture::yes;
    launch.standard_input = Stdin::pipe;
    auto started = start_process(launch);
    host.pid = started.pid;
    host.spec_pipe = std::move(started.in);
    host.spec.emplace(host.spec_pipe.get());
    auto const bytes = spec.encode();
    host.spec->add({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
    host.spec->write_some();
    console.add_stream(std::move(started.out), "", Target::out);
    console.add_stream(std::move(started.err), "", Target::err);
}

}  // namespace rapidsmpf::rrun

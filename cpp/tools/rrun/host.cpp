#include "host.hpp"

#include <filesystem>
#include <map>
#include <utility>

#include <rapidsmpf/core/detail/host_name.hpp>

namespace rapidsmpf::rrun {

namespace {

// For the shell on the other host.
std::string quoted(std::string const& text) {
    std::string out{"'"};
    for (char const c : text) {
        out += c == '\'' ? std::string{"'\\''"} : std::string{c};
    }
    return out + "'";
}

}  // namespace

bool is_here(std::string const& host) {
    return host == "localhost" || host == "127.0.0.1" || host == host_name();
}

std::vector<Host> hosts_of(std::vector<HostSpec> const& specs) {
    std::map<std::string, std::int32_t> on_host;
    for (auto const& spec : specs) {
        on_host[spec.name] += spec.nranks;
    }
    std::map<std::string, std::int32_t> taken;
    std::vector<Host> hosts;
    for (auto const& spec : specs) {
        Host host;
        host.kind = is_here(spec.name) ? HostKind::here : HostKind::remote;
        host.name = spec.name;
        host.seats = LocalSeats{taken[spec.name], spec.nranks, on_host.at(spec.name)};
        taken[spec.name] += spec.nranks;
        hosts.push_back(std::move(host));
    }
    return hosts;
}

std::vector<std::string> command_for(Host const& host, CommandLine const& command_line) {
    auto const own_path = [] {
        std::error_code error;
        auto const path = std::filesystem::read_symlink("/proc/self/exe", error);
        return error ? std::string{"rrun"} : path.string();
    };
    if (host.kind == HostKind::here) {
        return {own_path(), "--obey"};
    }
    auto command = command_line.ssh_command;
    command.push_back(host.name);
    command.push_back(
        quoted(command_line.remote_rrun.empty() ? own_path() : command_line.remote_rrun) + " --obey");
    return command;
}

}  // namespace rapidsmpf::rrun

#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

namespace rapidsmpf::rrun {

namespace {

// Walks over the arguments; an option's value is in the same argument or in the next.
class Arguments {
  public:
    explicit Arguments(std::span<char const* const> all) : left_{all} {}
    [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
    [[nodiscard]] std::string_view peek() const { return left_.front(); }
    std::string_view take() {
        std::string_view const first = left_.front();
        left_ = left_.subspan(1);
        return first;
    }
    // Takes the next argument if it is this option, with its value: "-n 2", "-n2", "--hosts a", "--hosts=a".
    std::optional<std::string_view> value_if(std::string_view short_form, std::string_view long_form) {
        auto const argument = peek();
        if (argument == short_form || argument == long_form) {
            take();
            if (left_.empty()) {
                throw UsageError{"option " + std::string{argument} + " needs a value"};
            }
            return take();
        }
        if (!long_form.empty() && argument.starts_with(long_form)
            && argument.substr(long_form.size()).starts_with('=')) {
            return take().substr(long_form.size() + 1);
        }
        if (!short_form.empty() && argument.starts_with(short_form)) {
            return take().substr(short_form.size());
        }
        return std::nullopt;
    }
    bool take_if(std::string_view short_form, std::string_view long_form) {
        if (peek() != long_form && (short_form.empty() || peek() != short_form)) {
            return false;
        }
        take();
        return true;
    }

  private:
    std::span<char const* const> left_;
};

std::int32_t parse_number(
    std::string_view text, std::string const& what, std::int32_t least, std::int32_t most) {
    std::int32_t value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size() || value < least || value > most) {
        throw UsageError{
            what + " from " + std::to_string(least) + " to " + std::to_string(most) + ", not '"
            + std::string{text} + "'"};
    }
    return value;
}

std::int32_t parse_nranks(std::string_view text) {
    return parse_number(text, "-n needs a number of processes", 1, most_ranks);
}

std::pair<std::string, std::string> parse_assignment(std::string_view text) {
    auto const equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
        throw UsageError{"-x needs VAR=value, not '" + std::string{text} + "'"};
    }
    auto name = std::string{text.substr(0, equals)};
    if (name.starts_with("RRUN_")) {
        throw UsageError{name + " is set by rrun itself and cannot be given by -x"};
    }
    return {std::move(name), std::string{text.substr(equals + 1)}};
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream{std::string{text}};
    for (std::string part; std::getline(stream, part, separator);) {
        if (!part.empty()) {
            parts.push_back(part);
        }
    }
    return parts;
}

// A name that goes on the command line of ssh must not look like an option.
void check_host_name(std::string const& name) {
    if (name.empty() || name.front() == '-' || name.find_first_of(" \t'\"\\$`;&|<>()") != std::string::npos) {
        throw UsageError{"'" + name + "' is not the name of a host"};
    }
}

std::vector<HostSpec> parse_hosts(std::string_view text) {
    std::vector<HostSpec> hosts;
    for (auto const& part : split(text, ',')) {
        auto const colon = part.rfind(':');
        HostSpec host;
        host.name = part.substr(0, colon);
        check_host_name(host.name);
        if (colon != std::string::npos) {
            host.nranks =
                parse_number(part.substr(colon + 1), "--hosts needs host:N with a number N", 1, most_ranks);
        }
        hosts.push_back(std::move(host));
    }
    if (hosts.empty()) {
        throw UsageError{"--hosts needs hosts, as in --hosts host1:4,host2:4"};
    }
    return hosts;
}

CoordinatorSpec parse_coordinator(std::string_view text) {
    CoordinatorSpec spec;
    auto const colon = text.rfind(':');
    spec.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
        constexpr std::int32_t most_port = 65535;
        spec.port = static_cast<std::uint16_t>(
            parse_number(text.substr(colon + 1), "--coordinator needs host:port with a port", 0, most_port));
    }
    if (!spec.host.empty()) {
        check_host_name(spec.host);
    }
    return spec;
}

// Repeated options add up; "none" and "all" stand alone.
void add_binding(std::optional<BindTo>& bind_to, std::string_view text) {
    for (auto const& part : split(text, ',')) {
        if (part == "all" || part == "none") {
            bool const all = part == "all";
            bind_to = BindTo{all, all, all};
            continue;
        }
        if (!bind_to) {
            bind_to = BindTo{false, false, false};
        }
        if (part == "cpu") {
            bind_to->cpu = true;
        } else if (part == "memory") {
            bind_to->memory = true;
        } else if (part == "network") {
            bind_to->network = true;
        } else {
            throw UsageError{"--bind-to needs cpu, memory, network, all or none, not '" + part + "'"};
        }
    }
}

void require(bool condition, char const* message) {
    if (!condition) {
        throw UsageError{message};
    }
}

void check_together(CommandLine& line) {
    if (!line.hosts.empty()) {
        require(
            !line.slurm && line.node_rank < 0,
            "--hosts starts rrun on the hosts itself: without "
            "--node-rank, --nnodes and --slurm");
        std::int32_t total = 0;
        for (auto const& host : line.hosts) {
            total += host.nranks;
        }
        require(total <= most_ranks, "too many ranks on these hosts");
        require(
            line.nranks == 0 || line.nranks == total,
            "-n differs from the number of ranks in --hosts: leave it out");
    } else if (line.slurm) {
        require(line.node_rank < 0 && line.nnodes == 0, "--slurm knows --node-rank and --nnodes itself");
    } else if (line.node_rank >= 0 || line.nnodes > 0) {
        require(line.node_rank >= 0 && line.nnodes > 0, "--node-rank and --nnodes belong together");
        require(line.node_rank < line.nnodes, "--node-rank counts from 0 to --nnodes minus 1");
        require(
            line.coordinator || !line.coordination_dir.empty(),
            "with --node-rank the hosts have to find each other: --coordinator host:port, or -d with a "
            "folder "
            "that all of them see");
        require(
            !line.coordinator || line.coordinator->port != 0 || !line.coordination_dir.empty(),
            "--coordinator needs host:port");
    } else {
        require(
            !line.coordinator, "--coordinator is for several hosts: with --hosts, --node-rank or --slurm");
    }
    if (line.nranks == 0 && line.hosts.empty()) {
        line.nranks = static_cast<std::int32_t>(line.gpus.size());
        if (line.nranks == 0 && line.slurm) {
            line.nranks = 1;
        }
    }
    require(
        line.nranks > 0 || !line.hosts.empty(),
        "the number of processes is missing: -n N (or GPUs by -g, or --hosts)");
    require(!line.command.empty(), "the program to run is missing");
}

}  // namespace

CommandLine parse_command_line(std::span<char const* const> arguments) {
    CommandLine result;
    Arguments left{arguments};
    std::optional<BindTo> bind_to;
    while (!left.empty()) {
        if (!left.peek().starts_with('-') || left.peek() == "-") {
            break;  // the program
        }
        if (left.peek() == "--") {
            left.take();
            break;
        }
        if (left.take_if("-h", "--help")) {
            result.action = Action::show_help;
            return result;
        }
        if (left.take_if("", "--version")) {
            result.action = Action::show_version;
            return result;
        }
        if (left.take_if("", "--obey")) {
            result.action = Action::obey;
            return result;
        }
        if (left.take_if("-v", "--verbose")) {
            result.verbose = Verbose::yes;
        } else if (left.take_if("", "--tag-output")) {
            result.tag_output = TagOutput::yes;
        } else if (left.take_if("", "--no-cleanup")) {
            result.cleanup = Cleanup::no;
        } else if (left.take_if("", "--slurm")) {
            result.slurm = true;
        } else if (auto const hosts = left.value_if("", "--hosts")) {
            result.hosts = parse_hosts(*hosts);
        } else if (auto const ssh = left.value_if("", "--ssh-command")) {
            result.ssh_command = split(*ssh, ' ');
            require(!result.ssh_command.empty(), "--ssh-command needs a command");
        } else if (auto const remote = left.value_if("", "--remote-rrun")) {
            result.remote_rrun = *remote;
        } else if (auto const coordinator = left.value_if("", "--coordinator")) {
            result.coordinator = parse_coordinator(*coordinator);
        } else if (auto const node = left.value_if("", "--node-rank")) {
            result.node_rank = parse_number(*node, "--node-rank needs a number", 0, most_ranks);
        } else if (auto const nodes = left.value_if("", "--nnodes")) {
            result.nnodes = parse_number(*nodes, "--nnodes needs a number of hosts", 1, most_ranks);
        } else if (auto const token = left.value_if("", "--token-file")) {
            result.token_file = *token;
        } else if (auto const binding = left.value_if("", "--bind-to")) {
            add_binding(bind_to, *binding);
        } else if (auto const variable = left.value_if("-x", "--set-env")) {
            result.environment.push_back(parse_assignment(*variable));
        } else if (auto const gpus = left.value_if("-g", "--gpus")) {
            result.gpus = split(*gpus, ',');
            require(!result.gpus.empty(), "-g needs GPUs, as in -g 0,1");
        } else if (auto const folder = left.value_if("-d", "--coord-dir")) {
            require(!folder->empty(), "-d needs a folder");
            result.coordination_dir = *folder;
        } else if (auto const nranks = left.value_if("-n", "--nranks")) {
            result.nranks = parse_nranks(*nranks);
        } else {
            throw UsageError{"unknown option '" + std::string{left.peek()} + "'"};
        }
    }
    result.bind_to = bind_to.value_or(BindTo{});
    while (!left.empty()) {
        result.command.emplace_back(left.take());
    }
    check_together(result);
    return result;
}

std::vector<std::string> arguments_for_node(CommandLine const& command_line, std::int32_t nranks) {
    std::vector<std::string> arguments{"-n", std::to_string(nranks)};
    if (!command_line.gpus.empty()) {
        std::string gpus;
        for (auto const& gpu : command_line.gpus) {
            gpus += (gpus.empty() ? "" : ",") + gpu;
        }
        arguments.insert(arguments.end(), {"-g", gpus});
    }
    if (!command_line.coordination_dir.empty()) {
        arguments.insert(arguments.end(), {"-d", command_line.coordination_dir});
    }
    if (command_line.tag_output == TagOutput::yes) {
        arguments.emplace_back("--tag-output");
    }
    if (command_line.verbose == Verbose::yes) {
        arguments.emplace_back("-v");
    }
    arguments.insert(arguments.end(), {"--bind-to", "none"});
    for (auto const& [wanted, name] :
         {std::pair{command_line.bind_to.cpu, "cpu"}, std::pair{command_line.bind_to.memory, "memory"},
          std::pair{command_line.bind_to.network, "network"}}) {
        if (wanted) {
            arguments.insert(arguments.end(), {"--bind-to", name});
        }
    }
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), command_line.command.begin(), command_line.command.end());
    return arguments;
}

std::string help_text() {
    return R"(usage: rrun -n N [options] [--] program [arguments...]
       rrun --hosts host1:4,host2:4 [options] [--] program [arguments...]

Starts the processes (ranks) of a program, each with its share of the machine: CPU cores, GPU, memory and network near
each other. When one of them fails, the others are told, have 2 seconds to end by themselves, and are then ended.

options:
  -n N                    number of processes on this host
  -g 0,1,...              GPUs: ranks take them in turn; without -n, one rank for each
  --bind-to WHAT          cpu, memory, network, all (default) or none; may be repeated
  --tag-output            put "[rank] " in front of every line that the processes print
  -x, --set-env VAR=val   set an environment variable for the processes (may be repeated)
  -d DIR                  folder in which the coordinator's address and token are left, for processes that join later
                          and for other hosts that see it
  --no-cleanup            leave what is in that folder in place
  -v, --verbose           say what is started where, and how it ended
  -h, --help              show this text
  --version               show the version

several hosts, all from here:
  --hosts host1:4,host2   start rrun on these hosts by ssh, with so many ranks on each
  --ssh-command COMMAND   instead of "ssh -o BatchMode=yes"
  --remote-rrun PATH      rrun on the other hosts, if it is not where it is here
  --coordinator HOST[:PORT]  address of this host for the others, if it cannot be told from the way to them

several hosts, one rrun on each:
  --node-rank K --nnodes M   this is host K of M; host 0 has the coordinator
  --coordinator HOST:PORT    where it listens; or -d DIR
  --token-file FILE          the secret that admits a host: 64 hexadecimal digits, the same everywhere; or in the
                             environment as RRUN_TOKEN; not needed with -d
  --slurm                    take all this from Slurm, by PMIx where there is one: srun ... rrun --slurm program

The processes find in their environment RRUN_RANK, RRUN_NRANKS, RRUN_LOCAL_RANK and RRUN_LOCAL_NRANKS. Rank 0 of a job
on one host reads rrun's standard input unless that is a terminal.

exit status: that of the process that failed first (128 + N if signal N killed it), 0 if none did; 1 if a host was lost,
2 for a wrong command line, 126 or 127 if the program cannot be executed or is not found.
)";
}

}  // namespace rapidsmpf::rrun

// The command line of rrun.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rapidsmpf::rrun {

// The command line is wrong; the message says how.
class UsageError : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

enum class TagOutput : bool { no = false, yes = true };
enum class Verbose : bool { no = false, yes = true };
enum class Cleanup : bool { no = false, yes = true };
// obey: this rrun was started by another one, on this or another host, and gets its launch specification on its standard
// input.
enum class Action : std::uint8_t { run, show_help, show_version, obey };

// What ranks are bound to.
struct BindTo {
    bool cpu{true};
    bool memory{true};
    bool network{true};
    friend bool operator==(BindTo const&, BindTo const&) = default;
};

struct HostSpec {
    std::string name;
    std::int32_t nranks{1};
    friend bool operator==(HostSpec const&, HostSpec const&) = default;
};

// "host:port", "host" or ":port".
struct CoordinatorSpec {
    std::string host;
    std::uint16_t port{0};
};

struct CommandLine {
    Action action{Action::run};
    std::int32_t nranks{0};         // on this host; 0: not given
    std::vector<std::string> gpus;  // -g, in the order given
    TagOutput tag_output{TagOutput::no};
    Verbose verbose{Verbose::no};
    BindTo bind_to;
    std::vector<std::pair<std::string, std::string>> environment;  // -x, in the order given
    std::string coordination_dir;                                  // -d
    Cleanup cleanup{Cleanup::yes};

    // Several hosts: either from here over ssh, or one rrun on each.
    std::vector<HostSpec> hosts;
    std::vector<std::string> ssh_command{"ssh", "-o", "BatchMode=yes"};
    std::string remote_rrun;  // rrun's path on the other hosts; empty: as here
    std::optional<CoordinatorSpec> coordinator;
    std::int32_t node_rank{-1};
    std::int32_t nnodes{0};
    bool slurm{false};
    std::string token_file;

    std::vector<std::string> command;  // program and its arguments

    [[nodiscard]] bool is_one_rrun_per_host() const noexcept { return node_rank >= 0; }
};

inline constexpr std::int32_t most_ranks = 4096;

// `arguments` without the program's own name. Throws UsageError.
[[nodiscard]] CommandLine parse_command_line(std::span<char const* const> arguments);

// The options that another rrun needs to start ranks of the same job on its host: number, GPUs, output, binding and the
// command. The environment (-x) is not among them: a command line can be read by others.
[[nodiscard]] std::vector<std::string> arguments_for_node(
    CommandLine const& command_line, std::int32_t nranks);

[[nodiscard]] std::string help_text();

}  // namespace rapidsmpf::rrun

// The command line of rrun.
#pragma once

#include <cstdint>
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
enum class Action : std::uint8_t { run, show_help };

struct CommandLine {
    Action action{Action::run};
    std::int32_t nranks{0};
    TagOutput tag_output{TagOutput::no};
    Verbose verbose{Verbose::no};
    std::vector<std::pair<std::string, std::string>> environment;  // -x, in the order given
    std::vector<std::string> command;                              // program and its arguments
};

inline constexpr std::int32_t most_ranks = 4096;

// `arguments` without the program's own name. Throws UsageError.
[[nodiscard]] CommandLine parse_command_line(std::span<char const* const> arguments);

[[nodiscard]] std::string help_text();

}  // namespace rapidsmpf::rrun

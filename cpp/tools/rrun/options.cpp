#include "options.hpp"

#include <charconv>
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
    std::string_view value_of(std::string_view option) {
        if (left_.empty()) {
            throw UsageError{"option " + std::string{option} + " needs a value"};
        }
        return take();
    }

  private:
    std::span<char const* const> left_;
};

std::int32_t parse_nranks(std::string_view text) {
    std::int32_t value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size() || value < 1 || value > most_ranks) {
        throw UsageError{
            "-n needs a number of processes from 1 to " + std::to_string(most_ranks) + ", not '"
            + std::string{text} + "'"};
    }
    return value;
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

}  // namespace

CommandLine parse_command_line(std::span<char const* const> arguments) {
    CommandLine result;
    Arguments left{arguments};
    while (!left.empty()) {
        if (!left.peek().starts_with('-') || left.peek() == "-") {
            break;  // the program
        }
        auto const option = left.take();
        if (option == "--") {
            break;
        }
        if (option == "-h" || option == "--help") {
            result.action = Action::show_help;
            return result;
        }
        if (option == "-v" || option == "--verbose") {
            result.verbose = Verbose::yes;
        } else if (option == "--tag-output") {
            result.tag_output = TagOutput::yes;
        } else if (option == "-n") {
            result.nranks = parse_nranks(left.value_of(option));
        } else if (option == "-x" || option == "--set-env") {
            result.environment.push_back(parse_assignment(left.value_of(option)));
        } else if (constexpr std::string_view long_form{"--set-env="}; option.starts_with(long_form)) {
            result.environment.push_back(parse_assignment(option.substr(long_form.size())));
        } else if (option.starts_with("-n")) {
            result.nranks = parse_nranks(option.substr(2));
        } else if (option.starts_with("-x")) {
            result.environment.push_back(parse_assignment(option.substr(2)));
        } else {
            throw UsageError{"unknown option '" + std::string{option} + "'"};
        }
    }
    while (!left.empty()) {
        result.command.emplace_back(left.take());
    }
    if (result.nranks == 0) {
        throw UsageError{"the number of processes is missing: -n N"};
    }
    if (result.command.empty()) {
        throw UsageError{"the program to run is missing"};
    }
    return result;
}

std::string help_text() {
    return R"(usage: rrun -n N [options] [--] program [arguments...]

Starts N processes (ranks) of a program on this machine, each with its share of the CPU cores.
When one of them fails, the others are told, have 2 seconds to end by themselves, and are then ended.

options:
  -n N                   number of processes
  --tag-output           put "[rank] " in front of every line that the processes print
  -x, --set-env VAR=val  set an environment variable for the processes (may be repeated)
  -v, --verbose          say what is started where, and how it ended
  -h, --help             show this text

The processes find in their environment RRUN_RANK, RRUN_NRANKS, RRUN_LOCAL_RANK, RRUN_LOCAL_NRANKS and, unless
it is set already, POLARS_MAX_THREADS (the number of their cores). Rank 0 reads rrun's standard input unless
that is a terminal.

exit status: that of the process that failed first (128 + N if signal N killed it), 0 if none did; 2 for a
wrong command line, 126 or 127 if the program cannot be executed or is not found.
)";
}

}  // namespace rapidsmpf::rrun

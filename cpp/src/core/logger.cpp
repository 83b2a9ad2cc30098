#include <rapidsmpf/core/logger.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>

#include <sys/syscall.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {
constexpr std::array<std::string_view, 6> level_names{"NONE", "PRINT", "WARN", "INFO", "DEBUG", "TRACE"};

// What a pipe takes as a whole, so that threads and processes that share one cannot interleave within a line.
constexpr std::size_t longest_line = PIPE_BUF;

void write_line(std::string_view line) {
    while (!line.empty()) {
        auto const written = ::write(STDERR_FILENO, line.data(), line.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return;
        }
        line.remove_prefix(static_cast<std::size_t>(written));
    }
}

}  // namespace

LogLevel parse_log_level(std::string_view text) {
    std::string word;
    for (char c : text) {
        if (std::isspace(static_cast<unsigned char>(c)) == 0) {
            word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        }
    }
    for (std::size_t i = 0; i < level_names.size(); ++i) {
        if (word == level_names[i]) {
            return static_cast<LogLevel>(i);
        }
    }
    throw std::invalid_argument(
        "unknown log level \"" + std::string{text} + "\": use NONE, PRINT, WARN, INFO, DEBUG or TRACE");
}

std::string_view to_string(LogLevel level) noexcept {
    return level_names[static_cast<std::size_t>(level)];
}

namespace {
// The environment's level where the options say nothing: the variable is how a user sees more of a program that
// never reads its environment.
LogLevel level_of(config::Options const& options) {
    auto const is_blank = [](std::string_view text) {
        return text.find_first_not_of(" \t") == std::string_view::npos;
    };
    auto const given = options.get_strings();
    auto const found = given.find("log");
    char const* const variable = std::getenv("RAPIDSMPF_LOG");
    if ((found == given.end() || is_blank(found->second)) && variable != nullptr && !is_blank(variable)) {
        return parse_log_level(variable);
    }
    return parse_log_level(config::get_text(options, "log"));
}
}  // namespace

Logger::Logger(config::Options options, std::int32_t rank) : level_{level_of(options)}, rank_{rank} {}

void Logger::log(LogLevel level, std::string_view message) const {
    if (level_ < level || level == LogLevel::none) {
        return;
    }
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::tm local{};
    localtime_r(&now.tv_sec, &local);
    std::array<char, 16> clock{};
    std::strftime(clock.data(), clock.size(), "%H:%M:%S", &local);
    std::array<char, 96> prefix{};
    auto const rank = rank_.load();
    auto const thread = static_cast<long>(::syscall(SYS_gettid));
    std::snprintf(
        prefix.data(), prefix.size(), "[%s:%s:%ld:%s.%03ld] ", std::string{to_string(level)}.c_str(),
        rank < 0 ? "-" : std::to_string(rank).c_str(), thread, clock.data(), now.tv_nsec / 1'000'000);
    std::string_view const head{prefix.data()};
    for (bool first = true; first || !message.empty(); first = false) {
        auto const longest = longest_line - head.size() - 1;
        auto const end = std::min(message.find('\n'), message.size());
        auto const piece = message.substr(0, std::min(end, longest));
        write_line(std::string{head}.append(piece).append(1, '\n'));
        message.remove_prefix(piece.size());
        if (message.starts_with('\n')) {
            message.remove_prefix(1);
        }
    }
}

}  // namespace rapidsmpf

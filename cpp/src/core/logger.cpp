#include <rapidsmpf/core/logger.hpp>

#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <stdexcept>

#include <sys/syscall.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/option_table.hpp>

namespace rapidsmpf {

namespace {
constexpr std::array<std::string_view, 6> level_names{"NONE", "PRINT", "WARN", "INFO", "DEBUG", "TRACE"};
}

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

Logger::Logger(config::Options options, std::int32_t rank)
    : level_{parse_log_level(config::get_text(options, "log"))}, rank_{rank} {}

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
    std::string line{prefix.data()};
    line += message;
    line += '\n';
    // One write for the whole line: threads and processes that share a pipe cannot interleave within it.
    auto const* rest = line.data();
    auto left = line.size();
    while (left > 0) {
        auto const written = ::write(STDERR_FILENO, rest, left);
        if (written <= 0) {
            return;
        }
        rest += written;
        left -= static_cast<std::size_t>(written);
    }
}

}  // namespace rapidsmpf

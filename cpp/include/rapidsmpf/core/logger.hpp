// Log lines with level, rank, thread and time, written whole to stderr: lines of threads and of processes
// that share a pipe never interleave. A message that has several lines, or is longer than a pipe takes as a whole, is
// written as several log lines.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include <rapidsmpf/core/config.hpp>

namespace rapidsmpf {

enum class LogLevel : std::uint8_t { none = 0, print, warn, info, debug, trace };

// "WARN" and so on, in any case. Throws std::invalid_argument.
[[nodiscard]] LogLevel parse_log_level(std::string_view text);
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;

class Logger {
  public:
    // The level comes from the option "log", else from the environment variable RAPIDSMPF_LOG (default WARN). `rank` < 0: not known yet.
    explicit Logger(config::Options options = config::Options{}, std::int32_t rank = -1);

    [[nodiscard]] LogLevel verbosity_level() const noexcept { return level_; }
    void set_rank(std::int32_t rank) noexcept { rank_ = rank; }

    // Writes one line if `level` is within the verbosity.
    void log(LogLevel level, std::string_view message) const;
    void print(std::string_view message) const { log(LogLevel::print, message); }
    void warn(std::string_view message) const { log(LogLevel::warn, message); }
    void info(std::string_view message) const { log(LogLevel::info, message); }
    void debug(std::string_view message) const { log(LogLevel::debug, message); }
    void trace(std::string_view message) const { log(LogLevel::trace, message); }

  private:
    LogLevel level_;
    std::atomic<std::int32_t> rank_;
};

}  // namespace rapidsmpf

// The processes of the ranks that this rrun starts: their start, their end, and bringing them to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/detail/token.hpp>

#include "console.hpp"
#include "options.hpp"
#include "placement.hpp"
#include "process.hpp"
#include "reaper.hpp"
#include "signals.hpp"

namespace rapidsmpf::rrun {

// After the first failure: how long the survivors have to end by themselves, and then to heed SIGTERM.
inline constexpr std::chrono::milliseconds failure_grace{2000};
inline constexpr std::chrono::milliseconds term_grace{1500};
// When a host is lost, finding that out has taken time already.
inline constexpr std::chrono::milliseconds lost_host_grace{500};

// What the ranks of this host have to know of the job.
struct JobView {
    std::int32_t first_rank{0};
    std::int32_t nranks{0};
    std::int32_t node_rank{0};
    std::int32_t nnodes{1};
    LocalSeats seats;
    bootstrap::SocketAddress address;
    Token token;
};

class Ranks {
  public:
    using Clock = std::chrono::steady_clock;

    Ranks(CommandLine const& command_line, Console& console, Reaper const& reaper)
        : command_line_{command_line}, console_{console}, reaper_{reaper} {}
    // On every way out nothing stays.
    ~Ranks();
    Ranks(Ranks const&) = delete;
    Ranks& operator=(Ranks const&) = delete;

    // Throws ExecError, SystemError, UsageError.
    void start(JobView const& view, Environment const& environment, Stdin rank_zero, sigset_t const& mask);
    // Calls `ended` for each rank that has ended since the last call.
    void look_for_ended(std::function<void(bootstrap::RankEnded const&)> const& ended);

    void signal(int number) const;
    // Brings what is left to its end: SIGTERM after `grace`, SIGKILL after another while. Later calls only shorten it.
    void end_after(std::chrono::milliseconds grace);
    // Does what is due; deadline() says when it has to be called next.
    void press_on();
    [[nodiscard]] std::optional<Clock::time_point> deadline() const;

    [[nodiscard]] bool any_alive() const;

  private:
    struct Process {
        pid_t pid{-1};
        std::optional<ExitStatus> ended;
    };
    Launch prepare(
        JobView const& view, Environment const& environment, std::int32_t index, Seat const& seat) const;

    CommandLine const& command_line_;
    Console& console_;
    Reaper const& reaper_;
    std::int32_t first_rank_{0};
    std::vector<Process> processes_;
    bool ending_{false};
    std::optional<Clock::time_point> term_at_;
    std::optional<Clock::time_point> kill_at_;
};

// "rank 1 (pid 4711, host node2)".
[[nodiscard]] std::string describe_rank(std::int32_t rank, std::int64_t pid, std::string const& host);

}  // namespace rapidsmpf::rrun

// A job on this host alone.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/core/error.hpp>

#include "console.hpp"
#include "job.hpp"
#include "job_status.hpp"
#include "polling.hpp"
#include "ranks.hpp"
#include "reaper.hpp"
#include "rendezvous_file.hpp"
#include "signals.hpp"

namespace rapidsmpf::rrun {

namespace {

using bootstrap::CoordinatorServer;

class LocalJob {
  public:
    explicit LocalJob(CommandLine const& command_line)
        : command_line_{command_line},
          token_{Token::random()},
          server_{command_line.nranks, token_, server_events(), server_settings()},
          job_status_{server_, console_},
          ranks_{command_line, console_, reaper_} {
        if (!command_line.coordination_dir.empty()) {
            rendezvous_.emplace(
                command_line.coordination_dir, Rendezvous{server_.address(), token_}, command_line.cleanup);
        }
    }

    int run() {
        start_ranks();
        while (ranks_.any_alive()) {
            wait_and_handle();
        }
        console_.finish(signals_);
        return job_status_.exit_code();
    }

  private:
    static CoordinatorServer::Settings server_settings() {
        CoordinatorServer::Settings settings;
        settings.silence_limit =
            bootstrap::silence_limit(config::Options{config::get_environment_variables()});
        return settings;
    }
    CoordinatorServer::Events server_events() {
        CoordinatorServer::Events events;
        events.log = [this](std::string const& message) { console_.say("coordinator: " + message); };
        return events;
    }

    void start_ranks() {
        auto const n = command_line_.nranks;
        JobView const view{0, n, 0, 1, LocalSeats{0, n, n}, server_.address(), token_};
        // A background process group must not read from a terminal: it would be stopped.
        auto const input = ::isatty(STDIN_FILENO) == 0 ? Stdin::inherit : Stdin::none;
        ranks_.start(view, Environment{}, input, signals_.before());
    }

    void wait_and_handle() {
        std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {server_.fd(), POLLIN, 0}};
        console_.add_to_poll(fds);
        wait_for(fds, {deadline_in(server_.timeout()), ranks_.deadline()});
        console_.pump(fds);
        // The coordinator first: what a rank said before it ended counts.
        server_.process();
        while (auto const signal = signals_.next()) {
            handle_signal(*signal);
        }
        ranks_.look_for_ended([this](bootstrap::RankEnded const& end) {
            job_status_.rank_ended(end, ranks_.any_alive() ? OthersAlive::yes : OthersAlive::no);
        });
        if (job_status_.failed()) {
            ranks_.end_after(failure_grace);
        }
        ranks_.press_on();
    }

    void handle_signal(int signal) {
        if (signal == SIGCHLD) {
            return;  // look_for_ended() follows
        }
        if (signal == SIGTSTP) {
            ranks_.signal(SIGTSTP);
            ::raise(SIGSTOP);
            return;
        }
        if (command_line_.verbose == Verbose::yes) {
            console_.say("passing " + signal_name(signal) + " on to the ranks");
        }
        if (signal == SIGINT && ++interrupts_ >= 3) {
            console_.say("interrupted three times; killing the ranks");
            ranks_.signal(SIGKILL);
            return;
        }
        ranks_.signal(signal);
    }

    CommandLine const& command_line_;
    Signals signals_;
    Reaper reaper_;  // forked before there is anything that it should not hold
    Console console_;
    Token token_;
    CoordinatorServer server_;
    std::optional<RendezvousFile> rendezvous_;
    JobStatus job_status_;
    Ranks ranks_;
    int interrupts_{0};
};

}  // namespace

int run_local_job(CommandLine const& command_line) {
    LocalJob job{command_line};
    return job.run();
}

}  // namespace rapidsmpf::rrun

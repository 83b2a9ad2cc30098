#include "job.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/server.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/host_name.hpp>

#include "cpu_share.hpp"
#include "guardian.hpp"
#include "output.hpp"
#include "process.hpp"

namespace rapidsmpf::rrun {

namespace {

using bootstrap::CoordinatorServer;
using bootstrap::Failure;
using Clock = std::chrono::steady_clock;

// After the first failure: how long the survivors have to end by themselves, and then to heed SIGTERM.
constexpr std::chrono::milliseconds grace{2000};
constexpr std::chrono::milliseconds term_grace{1500};

constexpr std::array passed_on{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};

// Blocks the signals that rrun handles, and makes them readable; undone at the end of its life.
class Signals {
  public:
    Signals() {
        sigset_t handled;
        ::sigemptyset(&handled);
        ::sigaddset(&handled, SIGCHLD);
        ::sigaddset(&handled, SIGTSTP);
        for (int const signal : passed_on) {
            ::sigaddset(&handled, signal);
        }
        ::sigprocmask(SIG_BLOCK, &handled, &before_);
        fd_ = FileDescriptor{::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
        if (!fd_.is_open()) {
            throw SystemError{"cannot wait for signals", errno};
        }
        ::signal(SIGPIPE, SIG_IGN);  // a write says EPIPE instead
        ::signal(SIGTTOU, SIG_IGN);
    }
    ~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
    Signals(Signals const&) = delete;
    Signals& operator=(Signals const&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] sigset_t const& before() const noexcept { return before_; }
    [[nodiscard]] std::optional<int> next() const {
        signalfd_siginfo info{};
        if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) {
            return std::nullopt;
        }
        return static_cast<int>(info.ssi_signo);
    }

  private:
    sigset_t before_{};
    FileDescriptor fd_;
};

// One of a rank's two output pipes.
struct Stream {
    Stream(FileDescriptor from_, std::string tag, OutputSink& to_)
        : from{std::move(from_)}, tagger{std::move(tag)}, to{&to_} {}
    FileDescriptor from;
    LineTagger tagger;
    OutputSink* to;
};

struct RankProcess {
    pid_t pid{-1};
    std::optional<ExitStatus> ended;
};

class Job {
  public:
    explicit Job(CommandLine const& command_line)
        : command_line_{command_line},
          host_{host_name()},
          token_{bootstrap::Token::random()},
          server_{command_line.nranks, token_, server_events()} {}

    ~Job() {
        // On every way out: nothing stays. What is not reaped keeps its process id, so that the group is still
        // the one that was started.
        if (failed_ || any_alive()) {
            signal_groups(SIGKILL);
        }
        for (auto const& rank : ranks_) {
            while (::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
    }
    Job(Job const&) = delete;
    Job& operator=(Job const&) = delete;

    int run() {
        start_ranks();
        while (any_alive()) {
            wait_and_handle();
        }
        finish_output();
        return exit_code_;
    }

  private:
    // Where poll() puts what belongs to what.
    struct Polled {
        std::vector<pollfd> fds;
        std::vector<Stream*> streams;  // those from first_stream on
        std::size_t first_stream{0};
    };

    CoordinatorServer::Events server_events() {
        CoordinatorServer::Events events;
        events.log = [this](std::string const& message) { say("coordinator: " + message); };
        return events;
    }

    void start_ranks() {
        auto const cpus = usable_cpus();
        auto const n = command_line_.nranks;
        ranks_.reserve(static_cast<std::size_t>(n));
        streams_.reserve(2 * static_cast<std::size_t>(n));
        for (std::int32_t rank = 0; rank < n; ++rank) {
            Launch launch;
            launch.command = command_line_.command;
            launch.cpus = cpu_share(cpus, rank, n);
            launch.capture = command_line_.tag_output == TagOutput::yes ? Capture::yes : Capture::no;
            // A background process group must not read from a terminal: it would be stopped.
            launch.standard_input = rank == 0 && ::isatty(STDIN_FILENO) == 0 ? Stdin::inherit : Stdin::none;
            launch.signal_mask = signals_.before();
            describe_rank(launch, rank, n);
            auto started = start_process(launch);
            guardian_.watch(started.pid);
            ranks_.push_back(RankProcess{started.pid, std::nullopt});
            if (launch.capture == Capture::yes) {
                auto const tag = "[" + std::to_string(rank) + "] ";
                streams_.emplace_back(std::move(started.out), tag, stdout_);
                streams_.emplace_back(std::move(started.err), tag, stderr_);
            }
            if (command_line_.verbose == Verbose::yes) {
                say(name_of(rank) + " started on CPU " + format_cpus(launch.cpus));
            }
        }
    }

    void describe_rank(Launch& launch, std::int32_t rank, std::int32_t nranks) const {
        auto& environment = launch.environment;
        if (!environment.contains("POLARS_MAX_THREADS") && !launch.cpus.empty()) {
            environment.set("POLARS_MAX_THREADS", std::to_string(launch.cpus.size()));
        }
        for (auto const& [name, value] : command_line_.environment) {
            environment.set(name, value);
        }
        environment.set("RRUN_RANK", std::to_string(rank));
        environment.set("RRUN_NRANKS", std::to_string(nranks));
        environment.set("RRUN_LOCAL_RANK", std::to_string(rank));
        environment.set("RRUN_LOCAL_NRANKS", std::to_string(nranks));
        environment.set("RRUN_SOCKET_ADDR", server_.address().str());
        environment.set("RRUN_SOCKET_TOKEN", token_.hex());
    }

    void wait_and_handle() {
        auto polled = what_to_poll();
        if (::poll(polled.fds.data(), polled.fds.size(), poll_timeout()) < 0 && errno != EINTR) {
            throw SystemError{"rrun cannot wait", errno};
        }
        pump_output(polled);
        // The coordinator first: what a rank said before it ended counts.
        server_.process();
        while (auto const signal = signals_.next()) {
            handle_signal(*signal);
        }
        look_for_ended_ranks();
        press_on();
    }

    Polled what_to_poll() {
        Polled polled;
        polled.fds.push_back({signals_.fd(), POLLIN, 0});
        polled.fds.push_back({server_.fd(), POLLIN, 0});
        for (auto* const sink : {&stdout_, &stderr_}) {
            polled.fds.push_back({sink->has_waiting() ? sink->fd() : -1, POLLOUT, 0});
        }
        polled.first_stream = polled.fds.size();
        for (auto& stream : streams_) {
            bool const wanted = stream.from.is_open() && !stream.to->is_full();
            polled.fds.push_back({wanted ? stream.from.get() : -1, POLLIN, 0});
            polled.streams.push_back(&stream);
        }
        return polled;
    }

    [[nodiscard]] int poll_timeout() const {
        auto wait = server_.timeout();
        for (auto const& deadline : {term_at_, kill_at_}) {
            if (deadline) {
                auto const left = std::max(
                    std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()),
                    std::chrono::milliseconds{0});
                wait = wait ? std::min(*wait, left) : left;
            }
        }
        return wait ? static_cast<int>(wait->count()) : -1;
    }

    void pump_output(Polled const& polled) {
        for (std::size_t i = 0; i < polled.streams.size(); ++i) {
            if (polled.fds[polled.first_stream + i].revents != 0) {
                read_stream(*polled.streams[i]);
            }
        }
        stdout_.write_some();
        stderr_.write_some();
    }

    // Takes what is there. Closes the stream at its end, or when nobody reads rrun's output any more: the rank
    // then gets SIGPIPE, as it would without rrun.
    void read_stream(Stream& stream) {
        std::array<char, 65536> bytes;  // NOLINT: filled by read
        while (!stream.to->is_full()) {
            auto const got = ::read(stream.from.get(), bytes.data(), bytes.size());
            if (got > 0) {
                stream.to->add(stream.tagger.append({bytes.data(), static_cast<std::size_t>(got)}));
                continue;
            }
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0 && errno == EAGAIN) {
                break;
            }
            stream.to->add(stream.tagger.finish());
            stream.from.reset();
            return;
        }
        if (stream.to->is_broken()) {
            stream.from.reset();
        }
    }

    // Everything that the ranks wrote is in the pipes by now; who else holds them is not waited for.
    void finish_output() {
        bool more = true;
        while (more) {
            more = false;
            for (auto& stream : streams_) {
                if (stream.from.is_open()) {
                    read_stream(stream);
                    more = more || (stream.from.is_open() && stream.to->is_full());
                }
            }
            if (!drain_sinks()) {
                return;
            }
        }
        for (auto& stream : streams_) {
            stream.to->add(stream.tagger.finish());
        }
        drain_sinks();
    }

    // Waits until rrun's own output is written; gives up on a signal.
    bool drain_sinks() {
        while (stdout_.has_waiting() || stderr_.has_waiting()) {
            stdout_.write_some();
            stderr_.write_some();
            std::array waiting{
                pollfd{signals_.fd(), POLLIN, 0},
                pollfd{stdout_.has_waiting() ? stdout_.fd() : -1, POLLOUT, 0},
                pollfd{stderr_.has_waiting() ? stderr_.fd() : -1, POLLOUT, 0}};
            if (waiting[1].fd < 0 && waiting[2].fd < 0) {
                break;
            }
            ::poll(waiting.data(), waiting.size(), -1);
            while (auto const signal = signals_.next()) {
                if (*signal != SIGCHLD && *signal != SIGCONT) {
                    return false;
                }
            }
        }
        return true;
    }

    void handle_signal(int signal) {
        if (signal == SIGCHLD) {
            return;  // look_for_ended_ranks() follows
        }
        if (signal == SIGTSTP) {
            signal_groups(SIGTSTP);
            ::raise(SIGSTOP);
            return;
        }
        if (command_line_.verbose == Verbose::yes) {
            say("passing " + signal_name(signal) + " on to the ranks");
        }
        if (signal == SIGINT && ++interrupts_ >= 3) {
            say("interrupted three times; killing the ranks");
            failed_ = true;
            signal_groups(SIGKILL);
            return;
        }
        signal_groups(signal);
    }

    void look_for_ended_ranks() {
        for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(ranks_.size()); ++rank) {
            auto& process = ranks_[static_cast<std::size_t>(rank)];
            if (process.ended) {
                continue;
            }
            siginfo_t info{};
            // Looked at, not reaped: see the destructor.
            if (::waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0
                || info.si_pid == 0) {
                continue;
            }
            process.ended = ExitStatus{info.si_code, info.si_status};
            rank_ended(rank, *process.ended);
        }
    }

    void rank_ended(std::int32_t rank, ExitStatus const& status) {
        if (command_line_.verbose == Verbose::yes) {
            say(name_of(rank) + " " + status.str());
        }
        if (status.is_success()) {
            server_.rank_ended(
                failure_of(rank, "its process exited with code 0 and left its communicator open"));
            return;
        }
        // Its last words, and its goodbye to the coordinator, may have come in the meantime.
        server_.process();
        server_.fail(failure_of(rank, "its process " + status.str()));
        // The exit code is that of the rank at fault, if it failed at all, else of the first that ended badly.
        bool const at_fault = server_.failure()->rank == rank;
        if (!failed_ || (at_fault && !culprit_known_)) {
            exit_code_ = status.exit_code();
            culprit_known_ = at_fault;
        }
        if (!failed_) {
            failed_ = true;
            report(rank, status);
            term_at_ = Clock::now() + grace;
        }
    }

    void report(std::int32_t ended, ExitStatus const& status) {
        auto const& failure = *server_.failure();
        // "its process was killed by SIGKILL" and other reasons that are known from the process itself are
        // better said directly.
        bool const by_process = failure.rank == ended && failure.reason == "its process " + status.str();
        auto text = by_process ? name_of(ended) + " " + status.str()
                               : name_of(failure.rank) + " failed: " + failure.reason;
        if (any_alive()) {
            text += "; ending the other ranks";
        }
        say(text);
    }

    // Brings the survivors of a failure to their end.
    void press_on() {
        auto const now = Clock::now();
        if (term_at_ && *term_at_ <= now) {
            term_at_.reset();
            kill_at_ = now + term_grace;
            signal_groups(SIGTERM);
            signal_groups(SIGCONT);  // a stopped process does not see SIGTERM
        }
        if (kill_at_ && *kill_at_ <= now) {
            kill_at_.reset();
            signal_groups(SIGKILL);
        }
    }

    void signal_groups(int signal) const {
        for (auto const& rank : ranks_) {
            ::kill(-rank.pid, signal);
        }
    }

    [[nodiscard]] bool any_alive() const {
        return std::any_of(ranks_.begin(), ranks_.end(), [](RankProcess const& rank) { return !rank.ended; });
    }

    [[nodiscard]] std::string name_of(std::int32_t rank) const {
        return "rank " + std::to_string(rank) + " (pid "
               + std::to_string(ranks_[static_cast<std::size_t>(rank)].pid) + ", host " + host_ + ")";
    }

    [[nodiscard]] Failure failure_of(std::int32_t rank, std::string reason) const {
        return Failure{rank, host_, ranks_[static_cast<std::size_t>(rank)].pid, std::move(reason)};
    }

    // One line on rrun's standard error, in order with what the ranks wrote there.
    void say(std::string const& message) {
        stderr_.add("rrun: " + message + "\n");
        stderr_.write_some();
    }

    CommandLine const& command_line_;
    Signals signals_;
    Guardian guardian_;  // forked before there is anything that it should not hold
    std::string host_;
    OutputSink stdout_{STDOUT_FILENO};
    OutputSink stderr_{STDERR_FILENO};
    bootstrap::Token token_;
    CoordinatorServer server_;
    std::vector<RankProcess> ranks_;
    std::vector<Stream> streams_;
    bool failed_{false};
    bool culprit_known_{false};
    int exit_code_{0};
    int interrupts_{0};
    std::optional<Clock::time_point> term_at_;
    std::optional<Clock::time_point> kill_at_;
};

}  // namespace

int run_job(CommandLine const& command_line) {
    Job job{command_line};
    return job.run();
}

}  // namespace rapidsmpf::rrun

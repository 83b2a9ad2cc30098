// The head of a job on several hosts: its coordinator listens for them, and it starts rrun on those that it reaches.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>

#include "console.hpp"
#include "host.hpp"
#include "host_start.hpp"
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
using bootstrap::Frame;
using bootstrap::Hello;
using bootstrap::MessageType;
using Clock = std::chrono::steady_clock;
using NodeId = CoordinatorServer::NodeId;

struct Setup {
    bootstrap::SocketAddress listen;
    Token token;
    std::vector<Host> hosts;
    bootstrap::PmixSession* pmix;
};

class HeadJob {
  public:
    HeadJob(CommandLine const& command_line, Setup setup)
        : command_line_{command_line},
          token_{setup.token},
          server_{0, token_, server_events(), server_settings(setup.listen)},
          job_status_{server_, console_},
          hosts_{std::move(setup.hosts)} {
        Rendezvous const rendezvous{server_.address(), token_};
        if (!command_line.coordination_dir.empty()) {
            rendezvous_.emplace(command_line.coordination_dir, rendezvous, command_line.cleanup);
        }
        if (setup.pmix != nullptr) {
            static_cast<void>(setup.pmix->broadcast(
                rendezvous_key, rendezvous.address.str() + " " + rendezvous.token.hex()));
        }
    }
    ~HeadJob() {
        for (auto const& host : hosts_) {
            if (host.pid > 0) {
                ::kill(-host.pid, SIGKILL);
                while (::waitpid(host.pid, nullptr, 0) < 0 && errno == EINTR) {
                }
            }
        }
    }
    HeadJob(HeadJob const&) = delete;
    HeadJob& operator=(HeadJob const&) = delete;

    int run() {
        for (std::size_t index = 0; index < hosts_.size(); ++index) {
            start(index);
        }
        join_by_ = Clock::now() + join_timeout;
        while (!all_done()) {
            wait_and_handle();
        }
        finish_hosts();
        console_.finish(signals_);
        return job_status_.exit_code();
    }

  private:
    struct Joined {
        NodeId id;
        Hello hello;
    };
    struct Received {
        NodeId id;
        Frame frame;
    };
    struct Lost {
        NodeId id;
    };
    using NodeEvent = std::variant<Joined, Received, Lost>;

    CoordinatorServer::Events server_events() {
        CoordinatorServer::Events events;
        // Kept until the server is done: what follows from them calls it.
        events.node_joined = [this](NodeId id, Hello const& hello) {
            events_.emplace_back(Joined{id, hello});
        };
        events.node_said = [this](NodeId id, Frame const& frame) {
            events_.emplace_back(Received{id, frame});
        };
        events.node_lost = [this](NodeId id) { events_.emplace_back(Lost{id}); };
        events.log = [this](std::string const& message) { console_.say("coordinator: " + message); };
        return events;
    }
    static CoordinatorServer::Settings server_settings(bootstrap::SocketAddress const& listen) {
        CoordinatorServer::Settings settings;
        settings.listen = listen;
        settings.silence_limit =
            bootstrap::silence_limit(config::Options{config::get_environment_variables()});
        return settings;
    }
    void say_if_verbose(std::string const& message) {
        if (command_line_.verbose == Verbose::yes) {
            console_.say(message);
        }
    }

    // --- starting ---

    void start(std::size_t index) {
        auto& host = hosts_[index];
        if (host.kind == HostKind::awaited) {
            return;
        }
        LaunchSpec spec;
        spec.address = server_.address().str();
        spec.token = token_.hex();
        spec.node_rank = static_cast<std::int32_t>(index);
        spec.nnodes = static_cast<std::int32_t>(hosts_.size());
        Launch launch;
        launch.signal_mask = signals_.before();
        launch.reaper = reaper_.fd();
        start_host(host, std::move(spec), std::move(launch), command_line_, console_);
        say_if_verbose(
            "host " + host.name + ": starting " + std::to_string(host.seats.count) + " ranks"
            + (host.kind == HostKind::remote ? " by " + command_line_.ssh_command.front() : ""));
    }

    void admit(NodeId id, Hello const& hello) {
        auto const index = static_cast<std::size_t>(hello.rank);
        auto const refuse = [&](std::string const& reason) {
            console_.say("refused host " + hello.host + ": " + reason);
            server_.send_to_node(id, bootstrap::Rejected{reason}.encode());
            server_.drop_node(id);
        };
        if (hello.rank < 0 || index >= hosts_.size()) {
            refuse("this job has " + std::to_string(hosts_.size()) + " hosts, numbered from 0");
            return;
        }
        auto& host = hosts_[index];
        if (host.node || host.given_up || begun_ || job_status_.failed()) {
            refuse("host " + std::to_string(hello.rank) + " is there already, or the job has ended");
            return;
        }
        if (host.kind == HostKind::awaited) {
            if (hello.nranks < 1 || hello.nranks > most_ranks) {
                refuse("it wants to start " + std::to_string(hello.nranks) + " ranks");
                return;
            }
            host.name = hello.host;
            host.seats.count = hello.nranks;
        }
        host.node = id;
        say_if_verbose("host " + host.name + ": joined");
        if (std::all_of(
                hosts_.begin(), hosts_.end(), [](Host const& each) { return each.node.has_value(); })) {
            begin();
        }
    }

    void begin() {
        std::int32_t total = 0;
        for (auto& host : hosts_) {
            host.first_rank = total;
            for (std::int32_t rank = 0; rank < host.seats.count; ++rank) {
                host.running.insert(total++);
            }
        }
        begun_ = true;
        server_.set_nranks(total);
        for (auto const& host : hosts_) {
            server_.send_to_node(*host.node, bootstrap::Begin{host.first_rank, total}.encode());
        }
    }

    // --- running ---

    void wait_and_handle() {
        std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {server_.fd(), POLLIN, 0}};
        for (auto const& host : hosts_) {
            bool const wanted = host.spec && host.spec->has_waiting();
            fds.push_back({wanted ? host.spec->fd() : -1, POLLOUT, 0});
        }
        console_.add_to_poll(fds);
        auto const joining = begun_ || job_status_.failed() ? Deadline{} : Deadline{join_by_};
        wait_for(fds, {deadline_in(server_.timeout()), joining, give_up_at_});
        console_.pump(fds);
        for (auto& host : hosts_) {
            if (host.spec) {
                host.spec->write_some();
            }
        }
        serve();
        while (auto const signal = signals_.next()) {
            handle_signal(*signal);
        }
        look_for_ended_processes();
        look_at_the_clock(joining);
        if (job_status_.failed() && !give_up_at_) {
            stop_all(lost_host_ ? lost_host_grace : failure_grace);
        }
    }

    void serve() {
        server_.process();
        while (!events_.empty()) {
            for (auto& event : std::exchange(events_, {})) {
                std::visit([this](auto const& what) { on(what); }, event);
            }
        }
    }

    void on(Joined const& joined) { admit(joined.id, joined.hello); }

    void on(Received const& received) {
        auto* const host = host_of(received.id);
        if (host == nullptr || host->given_up) {
            return;
        }
        try {
            if (received.frame.type == MessageType::rank_ended) {
                rank_ended(*host, bootstrap::RankEnded::decode(received.frame.payload));
            } else if (received.frame.type == MessageType::node_failed) {
                auto const failed = bootstrap::NodeFailed::decode(received.frame.payload);
                give_up(*host, failed.reason, failed.exit_code);
            } else {
                throw FormatError{"type " + std::to_string(static_cast<int>(received.frame.type))};
            }
        } catch (FormatError const& error) {
            server_.drop_node(received.id);
            host->node.reset();
            lost_host_ = true;
            give_up(
                *host, std::string{"its rrun sent something that is not understood: "} + error.what(),
                EXIT_FAILURE);
        }
    }

    void on(Lost const& lost) {
        auto* const host = host_of(lost.id);
        if (host == nullptr) {
            return;
        }
        host->node.reset();
        // Nothing more is sent to it: the process that passes messages on may end.
        host->spec.reset();
        host->spec_pipe.reset();
        if (!is_done(*host)) {
            lost_host_ = true;
            give_up(
                *host, "lost the connection to it (switched off, unplugged, or its rrun was killed)",
                EXIT_FAILURE);
        }
    }

    void rank_ended(Host& host, bootstrap::RankEnded const& end) {
        RAPIDSMPF_EXPECTS(host.running.erase(end.rank) == 1, "a rank that is not its own", FormatError);
        bool const others =
            std::any_of(hosts_.begin(), hosts_.end(), [](Host const& each) { return !each.running.empty(); });
        job_status_.rank_ended(end, others ? OthersAlive::yes : OthersAlive::no);
    }

    void give_up(Host& host, std::string const& reason, int exit_code) {
        host.given_up = true;
        host.running.clear();
        job_status_.host_failed(host.first_rank, host.name, reason, exit_code);
    }

    void handle_signal(int signal) {
        if (signal == SIGCHLD) {
            return;
        }
        if (!begun_) {
            if (signal != SIGCONT && signal != SIGTSTP) {
                job_status_.give_up(128 + signal);
            }
            return;
        }
        if (signal == SIGINT && ++interrupts_ >= 3) {
            console_.say("interrupted three times; killing the ranks");
            signal = SIGKILL;
        } else {
            say_if_verbose("passing " + signal_name(signal) + " on to the ranks");
        }
        for (auto const& host : hosts_) {
            if (host.node) {
                server_.send_to_node(*host.node, bootstrap::PassSignal{signal}.encode());
            }
        }
        if (signal == SIGTSTP) {
            ::raise(SIGSTOP);
        }
    }

    void look_for_ended_processes() {
        for (auto& host : hosts_) {
            siginfo_t info{};
            if (host.pid <= 0 || host.process_ended
                || ::waitid(P_PID, static_cast<id_t>(host.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0
                || info.si_pid == 0) {
                continue;
            }
            host.process_ended = ExitStatus{info.si_code, info.si_status};
            serve();  // what it sent before
            if (is_done(host)) {
                host.spec.reset();
                host.spec_pipe.reset();
                continue;
            }
            lost_host_ = true;
            auto const program =
                host.kind == HostKind::remote ? command_line_.ssh_command.front() : "its rrun";
            auto const code = host.process_ended->exit_code();
            bool const no_rrun = code == 126 || code == 127;
            give_up(
                host,
                host.node ? program + " " + host.process_ended->str() + " while its ranks ran"
                          : "rrun did not start there: " + program + " " + host.process_ended->str(),
                no_rrun && !host.node ? code : EXIT_FAILURE);
            host.spec.reset();
            host.spec_pipe.reset();
        }
    }

    void look_at_the_clock(Deadline const& joining) {
        auto const now = Clock::now();
        if (joining && *joining <= now && !begun_) {
            for (std::size_t index = 0; index < hosts_.size(); ++index) {
                auto& host = hosts_[index];
                if (!host.node && !host.given_up) {
                    host.name = host.name.empty() ? "number " + std::to_string(index) : host.name;
                    give_up(
                        host, "its rrun did not join within " + std::to_string(join_timeout.count()) + " s",
                        EXIT_FAILURE);
                }
            }
        }
        if (give_up_at_ && *give_up_at_ <= now) {
            for (auto& host : hosts_) {
                host.given_up = true;
            }
        }
    }

    // --- ending ---

    void stop_all(std::chrono::milliseconds grace) {
        constexpr std::chrono::milliseconds for_the_way{1000};
        give_up_at_ = Clock::now() + grace + term_grace + for_the_way;
        for (auto const& host : hosts_) {
            if (host.node) {
                server_.send_to_node(*host.node, bootstrap::Stop{grace}.encode());
            }
        }
    }

    // All ranks have ended or are given up: the other rruns end too, with the same exit code.
    void finish_hosts() {
        constexpr std::chrono::milliseconds patience{3000};
        for (auto const& host : hosts_) {
            if (host.node) {
                server_.send_to_node(*host.node, bootstrap::Finish{job_status_.exit_code()}.encode());
            }
        }
        give_up_at_ = Clock::now() + patience;
        auto const lingers = [](Host const& host) {
            return host.node || (host.pid > 0 && !host.process_ended && !host.given_up);
        };
        while (std::any_of(hosts_.begin(), hosts_.end(), lingers) && Clock::now() < *give_up_at_) {
            wait_and_handle();
        }
    }

    [[nodiscard]] bool is_done(Host const& host) const {
        return host.given_up || (begun_ ? host.running.empty() : job_status_.failed());
    }
    [[nodiscard]] bool all_done() const {
        return std::all_of(hosts_.begin(), hosts_.end(), [this](Host const& host) { return is_done(host); });
    }
    Host* host_of(NodeId id) {
        auto const found =
            std::find_if(hosts_.begin(), hosts_.end(), [&](Host const& host) { return host.node == id; });
        return found == hosts_.end() ? nullptr : &*found;
    }

    static constexpr std::chrono::seconds join_timeout{120};

    CommandLine const& command_line_;
    Signals signals_;
    Reaper reaper_;
    Console console_;
    Token token_;
    std::vector<NodeEvent> events_;
    CoordinatorServer server_;
    std::optional<RendezvousFile> rendezvous_;
    JobStatus job_status_;
    std::vector<Host> hosts_;
    bool begun_{false};
    bool lost_host_{false};
    Clock::time_point join_by_;
    Deadline give_up_at_;
    int interrupts_{0};
};

}  // namespace

int run_head_over_hosts(CommandLine const& command_line) {
    auto hosts = hosts_of(command_line.hosts);
    std::string const given = command_line.coordinator ? command_line.coordinator->host : "";
    std::uint16_t const port = command_line.coordinator ? command_line.coordinator->port : std::uint16_t{0};
    bootstrap::SocketAddress const listen{
        given.empty() ? address_towards(hosts) : bootstrap::resolve_host(given), port};
    auto const token = Token::random();
    return HeadJob{command_line, Setup{listen, token, std::move(hosts), nullptr}}.run();
}

int run_head_of_plan(CommandLine const& command_line, NodePlan const& plan) {
    std::vector<Host> hosts(static_cast<std::size_t>(plan.nnodes));
    hosts.front().kind = HostKind::here;
    hosts.front().name = host_name();
    hosts.front().seats = plan.seats;
    std::string address = "127.0.0.1";
    if (!plan.host.empty()) {
        address = bootstrap::resolve_host(plan.host);
    } else if (plan.nnodes > 1) {
        address = bootstrap::own_address();
    }
    auto const token = plan.token ? *plan.token : Token::random();
    Setup setup{bootstrap::SocketAddress{address, plan.port}, token, std::move(hosts), plan.pmix};
    return HeadJob{command_line, std::move(setup)}.run();
}

}  // namespace rapidsmpf::rrun

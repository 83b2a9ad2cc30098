// The part of a job on one of several hosts: starts the ranks that the head gives it, and reports to it.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>

#include "console.hpp"
#include "job.hpp"
#include "launch_spec.hpp"
#include "node_link.hpp"
#include "polling.hpp"
#include "ranks.hpp"
#include "reaper.hpp"
#include "rendezvous_file.hpp"
#include "signals.hpp"

namespace rapidsmpf::rrun {

namespace {

using Clock = std::chrono::steady_clock;
using bootstrap::Frame;
using bootstrap::MessageType;

// Whether the standard input is a lifeline: when it ends, the process that started this rrun is gone.
enum class Lifeline : bool { none, standard_input };

// How the node comes to its connection.
struct Joining {
    std::int32_t node_rank{0};
    std::int32_t nnodes{0};
    LocalSeats seats;
    std::optional<Rendezvous> rendezvous;  // none: to be found in the folder of -d
    Lifeline lifeline{Lifeline::none};
};

class NodeJob {
  public:
    NodeJob(CommandLine const& command_line, Joining const& joining)
        : command_line_{command_line}, joining_{joining}, ranks_{command_line, console_, reaper_} {}

    int run() {
        while (!is_done()) {
            if (!link_ && !exit_code_) {
                try_to_join();
            }
            wait_and_handle();
        }
        console_.finish(signals_);
        return *exit_code_;
    }

  private:
    [[nodiscard]] bool is_done() const { return exit_code_ && !ranks_.any_alive(); }

    // Once; what can still come is tried again later.
    void try_to_join() {
        auto const now = Clock::now();
        if (now < next_try_) {
            return;
        }
        next_try_ = now + try_again;
        rendezvous_ =
            joining_.rendezvous ? joining_.rendezvous : read_rendezvous(command_line_.coordination_dir);
        std::string obstacle = "nothing in the folder " + command_line_.coordination_dir;
        if (rendezvous_) {
            try {
                auto socket = bootstrap::connect_to(rendezvous_->address, try_again * 5);
                link_.emplace(std::move(socket));
                bootstrap::Hello const hello{rendezvous_->token, bootstrap::Role::node,
                                             joining_.node_rank, joining_.seats.count,
                                             ::getpid(),         host_name()};
                link_->send(hello.encode());
                return;
            } catch (SystemError const& error) {
                obstacle = error.what();
            } catch (TimeoutError const& error) {
                obstacle = error.what();
            }
        }
        if (now >= give_up_) {
            console_.say("the host with the coordinator did not come: " + obstacle);
            exit_code_ = EXIT_FAILURE;
        }
    }

    void wait_and_handle() {
        std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
        bool const held = joining_.lifeline == Lifeline::standard_input && !lifeline_cut_;
        fds.push_back({held ? STDIN_FILENO : -1, POLLIN, 0});
        fds.push_back({link_ ? link_->fd() : -1, link_ ? link_->events() : short{0}, 0});
        console_.add_to_poll(fds);
        auto const retry = link_ || exit_code_ ? Deadline{} : Deadline{next_try_};
        wait_for(fds, {ranks_.deadline(), retry});
        console_.pump(fds);
        while (auto const signal = signals_.next()) {
            handle_signal(*signal);
        }
        // Ends before launch specification: a rank that failed is reported as such, not as one that was told to end.
        ranks_.look_for_ended([this](bootstrap::RankEnded const& end) {
            if (link_) {
                link_->send(end.encode());
            }
        });
        if (link_ && fds[2].revents != 0) {
            talk_to_head();
        }
        if (held && fds[1].revents != 0) {
            read_lifeline();
        }
        ranks_.press_on();
    }

    void talk_to_head() {
        bool open = false;
        try {
            open = link_->exchange([this](Frame const& frame) { obey(frame); });
        } catch (FormatError const& error) {
            console_.say(
                std::string{"the head of the job sent something that is not understood: "} + error.what());
        }
        if (open || exit_code_) {
            return;
        }
        link_.reset();
        bool const may_come = !begun_ && !joining_.rendezvous && Clock::now() < give_up_;
        if (may_come) {
            return;  // what lay in the folder was of an earlier job
        }
        give_up(
            begun_ ? "lost the connection to the head of the job; ending the ranks"
                   : "the head of the job closed the connection: another token, or it has ended");
    }

    void give_up(std::string const& why) {
        if (!exit_code_) {
            console_.say(why);
            exit_code_ = EXIT_FAILURE;
        }
        ranks_.end_after(std::chrono::milliseconds{0});
    }

    void read_lifeline() {
        std::array<char, 256> bytes{};
        auto const got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
        if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) {
            return;
        }
        lifeline_cut_ = true;
        if (link_ && !exit_code_) {
            // Before the ends of its ranks, which would look like the cause.
            link_->send(
                bootstrap::NodeFailed{EXIT_FAILURE, "what rrun was started by there (ssh) is gone"}.encode());
        }
        give_up("the rrun that started this one is gone; ending the ranks");
    }

    void obey(Frame const& frame) {
        switch (frame.type) {
            case MessageType::begin:
                begin(bootstrap::Begin::decode(frame.payload));
                break;
            case MessageType::pass_signal: {
                auto const signal = bootstrap::PassSignal::decode(frame.payload).signal;
                ranks_.signal(signal);
                break;
            }
            case MessageType::stop:
                ranks_.end_after(bootstrap::Stop::decode(frame.payload).grace);
                break;
            case MessageType::finish:
                exit_code_ = bootstrap::Finish::decode(frame.payload).exit_code;
                ranks_.signal(SIGKILL);  // of those that the head has given up
                break;
            case MessageType::rejected:
                console_.say(
                    "the head of the job refuses this host: "
                    + bootstrap::Rejected::decode(frame.payload).reason);
                exit_code_ = EXIT_FAILURE;
                break;
            default:
                throw FormatError{"type " + std::to_string(static_cast<int>(frame.type))};
        }
    }

    void begin(bootstrap::Begin const& begin) {
        RAPIDSMPF_EXPECTS(!begun_, "a second beginning", FormatError);
        begun_ = true;
        JobView const view{begin.first_rank, begin.nranks,         joining_.node_rank, joining_.nnodes,
                           joining_.seats,   rendezvous_->address, rendezvous_->token};
        try {
            ranks_.start(view, Environment{}, Stdin::none, signals_.before());
        } catch (ExecError const& error) {
            fail_to_start(error.exit_code(), error.what());
        } catch (std::exception const& error) {
            fail_to_start(EXIT_FAILURE, error.what());
        }
    }

    void fail_to_start(int exit_code, std::string const& reason) {
        link_->send(bootstrap::NodeFailed{exit_code, reason}.encode());
        ranks_.end_after(std::chrono::milliseconds{0});
    }

    void handle_signal(int signal) {
        if (signal == SIGCHLD) {
            return;
        }
        if (!begun_ && signal != SIGCONT && signal != SIGTSTP) {
            exit_code_ = 128 + signal;
            return;
        }
        ranks_.signal(signal == SIGINT && ++interrupts_ >= 3 ? SIGKILL : signal);
        if (signal == SIGTSTP) {
            ::raise(SIGSTOP);
        }
    }

    static constexpr std::chrono::milliseconds try_again{200};
    static constexpr std::chrono::seconds join_timeout{120};

    CommandLine const& command_line_;
    Joining const& joining_;
    Signals signals_;
    Reaper reaper_;
    Console console_;
    std::optional<Rendezvous> rendezvous_;
    std::optional<NodeLink> link_;
    Ranks ranks_;
    Clock::time_point give_up_{Clock::now() + join_timeout};
    Clock::time_point next_try_{};
    bool begun_{false};
    bool lifeline_cut_{false};
    std::optional<int> exit_code_;
    int interrupts_{0};
};

}  // namespace

int run_node_of_plan(CommandLine const& command_line, NodePlan const& plan) {
    Joining joining{plan.node_rank, plan.nnodes, plan.seats, std::nullopt, Lifeline::none};
    if (plan.pmix != nullptr) {
        auto const text = plan.pmix->broadcast(rendezvous_key, "");
        auto const space = text.find(' ');
        RAPIDSMPF_EXPECTS(space != std::string::npos, "PMIx carried something else", FormatError);
        joining.rendezvous.emplace(
            bootstrap::SocketAddress::parse(text.substr(0, space)), Token::from_hex(text.substr(space + 1)));
    } else if (!plan.host.empty()) {
        if (!plan.token) {
            throw UsageError{"--coordinator needs RRUN_TOKEN in the environment or --token-file"};
        }
        joining.rendezvous.emplace(
            bootstrap::SocketAddress{bootstrap::resolve_host(plan.host), plan.port}, *plan.token);
    }
    return NodeJob{command_line, joining}.run();
}

int run_node_by_spec() {
    auto const spec = LaunchSpec::read_from(STDIN_FILENO);
    for (auto const& entry : spec.environment) {
        auto const equals = entry.find('=');
        if (equals != std::string::npos) {
            ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
        }
    }
    if (!spec.directory.empty() && ::chdir(spec.directory.c_str()) != 0) {
        throw SystemError{"host " + host_name() + " has no folder " + spec.directory, errno};
    }
    std::vector<char const*> arguments;
    for (auto const& argument : spec.arguments) {
        arguments.push_back(argument.c_str());
    }
    auto command_line = parse_command_line(arguments);
    for (auto const& entry : spec.variables) {
        auto const equals = entry.find('=');
        command_line.environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
    }
    Joining const joining{
        spec.node_rank, spec.nnodes, spec.seats,
        Rendezvous{bootstrap::SocketAddress::parse(spec.address), Token::from_hex(spec.token)},
        Lifeline::standard_input};
    return NodeJob{command_line, joining}.run();
}

}  // namespace rapidsmpf::rrun

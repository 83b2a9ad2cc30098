#include "ranks.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/wait.h>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/memory_policy.hpp>

namespace rapidsmpf::rrun {

namespace {

std::string join(std::vector<std::string> const& parts) {
    std::string text;
    for (auto const& part : parts) {
        text += (text.empty() ? "" : ",") + part;
    }
    return text;
}

std::string describe_seat(Seat const& seat) {
    std::string text;
    auto const add = [&](std::string const& what, std::string const& value) {
        if (!value.empty()) {
            text += (text.empty() ? " on " : ", ") + what + " " + value;
        }
    };
    add("GPU", seat.gpu);
    add("CPU", topology::format_list(seat.binding.cpus));
    add("memory of node", topology::format_list(seat.binding.memory_nodes));
    add("network", join(seat.binding.network_devices));
    return text;
}

}  // namespace

std::string describe_rank(std::int32_t rank, std::int64_t pid, std::string const& host) {
    auto text = "rank " + std::to_string(rank) + " (";
    if (pid != 0) {
        text += "pid " + std::to_string(pid) + ", ";
    }
    return text + "host " + host + ")";
}

Ranks::~Ranks() {
    // What is not reaped keeps its process id, so that the group is still the one that was started.
    if (ending_ || any_alive()) {
        signal(SIGKILL);
    }
    for (auto const& process : processes_) {
        while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

Launch Ranks::prepare(
    JobView const& view, Environment const& environment, std::int32_t index, Seat const& seat) const {
    Launch launch;
    launch.command = command_line_.command;
    launch.environment = environment;
    launch.cpus = seat.binding.cpus;
    launch.memory = topology::NodeMask{seat.binding.memory_nodes};
    launch.capture = command_line_.tag_output == TagOutput::yes ? Capture::yes : Capture::no;
    auto& variables = launch.environment;
    if (!seat.gpu.empty()) {
        if (!variables.contains("CUDA_VISIBLE_DEVICES") && !variables.contains("CUDA_DEVICE_ORDER")) {
            variables.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // as our numbers count
        }
        variables.set("CUDA_VISIBLE_DEVICES", seat.gpu);
    }
    if (!seat.binding.network_devices.empty() && !variables.contains("UCX_NET_DEVICES")) {
        variables.set("UCX_NET_DEVICES", join(seat.binding.network_devices));
    }
    for (auto const& [name, value] : command_line_.environment) {
        variables.set(name, value);
    }
    if (!command_line_.coordination_dir.empty()) {
        variables.set("RRUN_COORD_DIR", command_line_.coordination_dir);
    }
    variables.set("RRUN_RANK", std::to_string(view.first_rank + index));
    variables.set("RRUN_NRANKS", std::to_string(view.nranks));
    variables.set("RRUN_LOCAL_RANK", std::to_string(view.seats.first + index));
    variables.set("RRUN_LOCAL_NRANKS", std::to_string(view.seats.on_host));
    variables.set("RRUN_NODE_RANK", std::to_string(view.node_rank));
    variables.set("RRUN_NNODES", std::to_string(view.nnodes));
    variables.set("RRUN_SOCKET_ADDR", view.address.str());
    variables.set("RRUN_SOCKET_TOKEN", view.token.hex());
    return launch;
}

void Ranks::start(
    JobView const& view, Environment const& environment, Stdin rank_zero, sigset_t const& mask) {
    auto const seats = place_ranks(command_line_, view.seats);
    first_rank_ = view.first_rank;
    processes_.reserve(seats.size());
    for (std::int32_t index = 0; index < view.seats.count; ++index) {
        auto const& seat = seats[static_cast<std::size_t>(index)];
        auto launch = prepare(view, environment, index, seat);
        auto const rank = first_rank_ + index;
        launch.standard_input = rank == 0 ? rank_zero : Stdin::none;
        launch.signal_mask = mask;
        launch.reaper = reaper_.fd();
        auto started = start_process(launch);
        processes_.push_back(Process{started.pid, std::nullopt});
        if (launch.capture == Capture::yes) {
            auto const tag = "[" + std::to_string(rank) + "] ";
            console_.add_stream(std::move(started.out), tag, Target::out);
            console_.add_stream(std::move(started.err), tag, Target::err);
        }
        if (command_line_.verbose == Verbose::yes) {
            console_.say(describe_rank(rank, started.pid, host_name()) + " started" + describe_seat(seat));
        }
    }
}

void Ranks::look_for_ended(std::function<void(bootstrap::RankEnded const&)> const& ended) {
    for (std::size_t index = 0; index < processes_.size(); ++index) {
        auto& process = processes_[index];
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
        auto const rank = first_rank_ + static_cast<std::int32_t>(index);
        if (command_line_.verbose == Verbose::yes) {
            console_.say(describe_rank(rank, process.pid, host_name()) + " " + process.ended->str());
        }
        ended(
            bootstrap::RankEnded{
                rank, process.pid, host_name(), process.ended->exit_code(), process.ended->str()});
    }
}

void Ranks::signal(int number) const {
    for (auto const& process : processes_) {
        ::kill(-process.pid, number);
    }
}

void Ranks::end_after(std::chrono::milliseconds grace) {
    auto const at = Clock::now() + grace;
    if (!ending_) {
        ending_ = true;
        term_at_ = at;
    } else if (term_at_) {
        term_at_ = std::min(*term_at_, at);
    }
}

void Ranks::press_on() {
    auto const now = Clock::now();
    if (term_at_ && *term_at_ <= now) {
        term_at_.reset();
        kill_at_ = now + term_grace;
        signal(SIGTERM);
        signal(SIGCONT);  // a stopped process does not see SIGTERM
    }
    if (kill_at_ && *kill_at_ <= now) {
        kill_at_.reset();
        signal(SIGKILL);
    }
}

std::optional<Ranks::Clock::time_point> Ranks::deadline() const {
    if (!any_alive()) {
        return std::nullopt;
    }
    return term_at_ ? term_at_ : kill_at_;
}

bool Ranks::any_alive() const {
    return std::any_of(
        processes_.begin(), processes_.end(), [](Process const& process) { return !process.ended; });
}

}  // namespace rapidsmpf::rrun

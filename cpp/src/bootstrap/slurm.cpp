#include <rapidsmpf/bootstrap/detail/slurm.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <stdexcept>

#include <sys/stat.h>

namespace rapidsmpf::bootstrap {

namespace {

std::string first_variable(std::initializer_list<char const*> names) {
    for (auto const* const name : names) {
        if (auto const* const value = std::getenv(name); value != nullptr && *value != '\0') {
            return value;
        }
    }
    return {};
}

std::optional<std::int64_t> to_number(std::string const& text) {
    std::int64_t value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop == text.data()) {
        return std::nullopt;
    }
    return value;
}

}  // namespace

std::string first_of_hosts(std::string const& hosts) {
    auto const bracket = hosts.find('[');
    auto const comma = hosts.find(',');
    if (bracket == std::string::npos || comma < bracket) {
        return hosts.substr(0, comma);
    }
    auto const number_end = hosts.find_first_of("-,]", bracket);
    auto const close = hosts.find(']', bracket);
    if (number_end == std::string::npos || close == std::string::npos) {
        return hosts.substr(0, bracket);
    }
    auto const suffix_end = std::min(hosts.find(',', close), hosts.size());
    return hosts.substr(0, bracket) + hosts.substr(bracket + 1, number_end - bracket - 1)
           + hosts.substr(close + 1, suffix_end - close - 1);
}

std::int32_t tasks_of_host(std::string const& tasks_per_host, std::int32_t host) {
    std::istringstream stream{tasks_per_host};
    std::int64_t hosts_seen = 0;
    for (std::string part; std::getline(stream, part, ',');) {
        auto const times = part.find("(x");
        auto const tasks = to_number(part);
        auto const count = times == std::string::npos ? 1 : to_number(part.substr(times + 2)).value_or(1);
        hosts_seen += count;
        if (tasks && host < hosts_seen) {
            return static_cast<std::int32_t>(*tasks);
        }
    }
    return 1;
}

std::optional<SlurmStep> SlurmStep::from_environment() {
    auto const task = to_number(first_variable({"SLURM_PROCID"}));
    if (!task) {
        return std::nullopt;
    }
    auto const tasks = to_number(first_variable({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}));
    if (!tasks || *task < 0 || *task >= *tasks) {
        throw std::runtime_error{
            "SLURM_PROCID=" + std::to_string(*task) + " is not below the number of tasks (SLURM_NTASKS="
            + first_variable({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"})
            + "): start the program by srun"};
    }
    SlurmStep step;
    step.task = static_cast<std::int32_t>(*task);
    step.tasks = static_cast<std::int32_t>(*tasks);
    step.local_task = static_cast<std::int32_t>(to_number(first_variable({"SLURM_LOCALID"})).value_or(0));
    auto const host = to_number(first_variable({"SLURM_NODEID"})).value_or(0);
    step.tasks_on_host = std::max(
        step.local_task + 1, tasks_of_host(
                                 first_variable({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}),
                                 static_cast<std::int32_t>(host)));
    step.first_host =
        first_of_hosts(first_variable({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
    if (step.first_host.empty()) {
        step.first_host = "localhost";
    }
    // Above the ports of services and below those that kernels give to clients.
    constexpr std::int64_t first_port = 20000;
    constexpr std::int64_t ports = 12000;
    constexpr std::int64_t steps_apart = 37;
    auto const job = to_number(first_variable({"SLURM_JOB_ID", "SLURM_JOBID"})).value_or(0);
    auto const number = to_number(first_variable({"SLURM_STEP_ID", "SLURM_STEPID"})).value_or(0);
    step.port = static_cast<std::uint16_t>(first_port + (job + steps_apart * number) % ports);
    return step;
}

std::optional<Token> find_token(std::string const& file) {
    if (!file.empty()) {
        struct stat status{};
        std::ifstream stream{file};
        std::string text;
        if (::stat(file.c_str(), &status) != 0 || !(stream >> text)) {
            throw std::runtime_error{"the token file " + file + " cannot be read"};
        }
        if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
            throw std::runtime_error{"others can read the token file " + file + ": chmod 600 " + file};
        }
        return Token::from_hex(text);
    }
    if (auto const text = first_variable({"RRUN_TOKEN"}); !text.empty()) {
        return Token::from_hex(text);
    }
    return std::nullopt;
}

}  // namespace rapidsmpf::bootstrap

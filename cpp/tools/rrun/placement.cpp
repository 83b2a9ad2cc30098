#include "placement.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>

#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/nvml.hpp>

namespace rapidsmpf::rrun {

namespace {

std::optional<std::size_t> as_number(std::string const& text) {
    std::size_t value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

bool is_cpu_job(CommandLine const& command_line) {
    auto const* const here = std::getenv("RAPIDSMPF_DEVICE");
    std::string device = here == nullptr ? "" : here;
    for (auto const& [name, value] : command_line.environment) {
        if (name == "RAPIDSMPF_DEVICE") {
            device = value;
        }
    }
    return device == "cpu";
}

}  // namespace

std::vector<std::string> choose_gpus(
    std::vector<std::string> const& chosen, char const* visible, std::size_t existing) {
    std::vector<std::string> all;
    if (visible != nullptr) {
        std::istringstream stream{visible};
        for (std::string part; std::getline(stream, part, ',');) {
            if (part.empty() || part.starts_with('-')) {
                break;  // CUDA stops at the first that it does not know
            }
            all.push_back(part);
        }
    } else {
        for (std::size_t gpu = 0; gpu < existing; ++gpu) {
            all.push_back(std::to_string(gpu));
        }
    }
    if (chosen.empty()) {
        return all;
    }
    std::vector<std::string> gpus;
    for (auto const& id : chosen) {
        auto const number = as_number(id);
        if (visible != nullptr && number) {
            if (*number >= all.size()) {
                throw UsageError{
                    "-g " + id + ": CUDA_VISIBLE_DEVICES=" + visible + " shows " + std::to_string(all.size())
                    + " GPUs, numbered from 0"};
            }
            gpus.push_back(all[*number]);
        } else {
            gpus.push_back(id);
        }
    }
    return gpus;
}

std::vector<Seat> place_ranks(CommandLine const& command_line, LocalSeats const& seats) {
    auto const& bind_to = command_line.bind_to;
    bool const wants_gpus = !command_line.gpus.empty() || !is_cpu_job(command_line);
    auto const existing = wants_gpus ? topology::gpus_of_nvml() : std::vector<topology::GpuName>{};
    std::vector<std::string> gpus;
    if (!command_line.gpus.empty() || !existing.empty()) {
        gpus = choose_gpus(command_line.gpus, std::getenv("CUDA_VISIBLE_DEVICES"), existing.size());
    }
    auto const on_host = static_cast<std::size_t>(seats.on_host);
    std::vector<topology::Binding> bindings(on_host);
    if (bind_to.cpu || bind_to.memory || bind_to.network) {
        auto const machine = topology::read_topology("/sys", existing);
        topology::RankGpus near(on_host);
        for (std::size_t rank = 0; rank < on_host && !gpus.empty(); ++rank) {
            near[rank] = topology::find_gpu(machine, gpus[rank % gpus.size()]);
        }
        bindings = topology::plan_bindings(machine, topology::usable_cpus(), near);
    }
    std::vector<Seat> placed;
    for (std::int32_t rank = seats.first; rank < seats.first + seats.count; ++rank) {
        auto const local = static_cast<std::size_t>(rank);
        Seat seat;
        seat.binding = bindings.at(local);
        if (!bind_to.cpu) {
            seat.binding.cpus.clear();
        }
        if (!bind_to.memory) {
            seat.binding.memory_nodes.clear();
        }
        if (!bind_to.network) {
            seat.binding.network_devices.clear();
        }
        if (!gpus.empty()) {
            seat.gpu = gpus[local % gpus.size()];
        }
        placed.push_back(std::move(seat));
    }
    return placed;
}

}  // namespace rapidsmpf::rrun

// check_resource_binding: says whether a process is bound to what is near it. For use under a launcher:
// `rrun -n 4 check_resource_binding`.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/detail/json_writer.hpp>
#include <rapidsmpf/topology/binding.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/memory_policy.hpp>
#include <rapidsmpf/topology/detail/nvml.hpp>

namespace {

using namespace rapidsmpf;

constexpr std::string_view help = R"(usage: check_resource_binding [--json] [--gpu N] [--sysfs DIR]

Compares what this process may use (CPUs, memory, network) with what is near its GPU, or where it has none, near its
CPUs. Ends with 0 when all fits and 1 when something does not. Under a launcher: rrun -n 4 check_resource_binding

options:
  --json       print JSON instead of text
  --gpu N      the GPU; otherwise the first of CUDA_VISIBLE_DEVICES, if that is set
  --sysfs DIR  read this copy of a machine's /sys instead; its GPUs are those of its PCI bus
  -h, --help   show this text
)";

struct Check {
    std::string what;
    std::string is;
    std::string expected;
    bool passed;
};

struct Arguments {
    bool json{false};
    std::optional<std::string> gpu;
    std::optional<std::filesystem::path> sysfs;
};

std::string variable(char const* name) {
    auto const* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::vector<std::string> split(std::string const& text) {
    std::vector<std::string> parts;
    std::istringstream stream{text};
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    std::sort(parts.begin(), parts.end());
    return parts;
}

std::string join(std::vector<std::string> const& parts) {
    std::string text;
    for (auto const& part : parts) {
        text += (text.empty() ? "" : ",") + part;
    }
    return text;
}

Check check_cpus(topology::Topology const& machine, topology::Gpu const* gpu, std::vector<int> const& mine) {
    std::vector<int> near;
    for (auto const& cpu : machine.cpus) {
        near.push_back(cpu.id);
    }
    if (gpu != nullptr) {
        if (auto const local = topology::cpus_near(machine, gpu->place, near); !local.empty()) {
            near = local;
        }
    }
    std::sort(near.begin(), near.end());
    bool const inside = std::includes(near.begin(), near.end(), mine.begin(), mine.end());
    return Check{"cpu", topology::format_list(mine), "within " + topology::format_list(near), inside};
}

Check check_memory(topology::Topology const& machine, std::vector<int> const& mine) {
    auto const wanted = topology::format_list(machine.nodes_of(mine));
    auto const current = topology::current_memory_policy();
    auto const is = current.nodes.empty() ? "any" : topology::format_list(current.nodes);
    // A process that may run everywhere has nothing to prefer.
    bool const everywhere = machine.nodes_of(mine).size() >= machine.nodes.size();
    return Check{"memory", is, everywhere ? "any" : wanted, everywhere || is == wanted};
}

Check check_network(
    topology::Topology const& machine, topology::Gpu const* gpu, std::vector<int> const& mine) {
    auto wanted = gpu != nullptr && !gpu->place.path.empty()
                      ? topology::nearest_network(machine, gpu->place)
                      : topology::nearest_network(machine, machine.nodes_of(mine));
    std::sort(wanted.begin(), wanted.end());
    auto const is = split(variable("UCX_NET_DEVICES"));
    return Check{
        "network", is.empty() ? "any" : join(is), wanted.empty() ? "any" : join(wanted),
        wanted.empty() || is == wanted};
}

void print_text(std::vector<Check> const& checks, std::string const& title) {
    for (auto const& check : checks) {
        std::cout << title << check.what << ": " << check.is << (check.passed ? " (ok)" : " (expected: ")
                  << (check.passed ? "" : check.expected + ")") << '\n';
    }
}

int check_all(Arguments const& arguments) {
    auto const sysfs = arguments.sysfs.value_or("/sys");
    auto const names = arguments.sysfs ? topology::gpus_of_pci_bus(sysfs) : topology::gpus_of_nvml();
    auto const machine = topology::read_topology(sysfs, names);
    auto const visible = variable("CUDA_VISIBLE_DEVICES");
    auto const id = arguments.gpu.value_or(visible.substr(0, visible.find(',')));
    auto const found = topology::find_gpu(machine, id);
    auto const* const gpu = found ? &machine.gpus[*found] : nullptr;
    auto const mine = topology::usable_cpus();
    std::vector<Check> checks;
    if (arguments.gpu && gpu == nullptr) {
        checks.push_back(Check{"gpu", "not found", id, false});
    }
    checks.push_back(check_cpus(machine, gpu, mine));
    checks.push_back(check_memory(machine, mine));
    checks.push_back(check_network(machine, gpu, mine));
    bool const passed = std::all_of(checks.begin(), checks.end(), [](Check const& c) { return c.passed; });
    auto const rank = variable("RRUN_RANK");
    if (!arguments.json) {
        print_text(checks, rank.empty() ? "" : "rank " + rank + " ");
        return passed ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    JsonWriter json;
    json.begin_object().field("hostname", host_name());
    json.key("rank");
    rank.empty() ? json.null() : json.value(std::stoi(rank));
    json.key("gpu");
    gpu == nullptr ? json.null() : json.value(gpu->index);
    json.field("passed", passed).key("checks").begin_object();
    for (auto const& check : checks) {
        json.key(check.what).begin_object().field("passed", check.passed);
        json.field("is", check.is).field("expected", check.expected).end_object();
    }
    json.end_object().end_object();
    std::cout << json.text() + "\n" << std::flush;
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr int usage_exit_code = 2;
    Arguments result;
    auto const arguments = std::span<char const* const>{argv, static_cast<std::size_t>(argc)}.subspan(1);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string_view const argument{arguments[i]};
        bool const has_value = i + 1 < arguments.size();
        if (argument == "-h" || argument == "--help") {
            std::cout << help;
            return EXIT_SUCCESS;
        }
        if (argument == "--json") {
            result.json = true;
        } else if (argument == "--gpu" && has_value) {
            result.gpu = arguments[++i];
        } else if (argument == "--sysfs" && has_value) {
            result.sysfs = arguments[++i];
        } else {
            std::cerr << "check_resource_binding: what is '" << argument << "'?\n" << help;
            return usage_exit_code;
        }
    }
    try {
        return check_all(result);
    } catch (std::exception const& error) {
        std::cerr << "check_resource_binding: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}

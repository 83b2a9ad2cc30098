// topology_discovery: prints, as JSON, what this machine is made of and what is near to what.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string_view>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/json.hpp>
#include <rapidsmpf/topology/detail/nvml.hpp>

namespace {

constexpr std::string_view help = R"(usage: topology_discovery [--sysfs DIR]

Prints as JSON the CPUs, NUMA nodes, GPUs and network devices of this machine and which are near to each other.

options:
  --sysfs DIR  read this copy of a machine's /sys instead; its GPUs are those of its PCI bus
  -h, --help   show this text
)";

}  // namespace

int main(int argc, char** argv) {
    using namespace rapidsmpf;
    constexpr int usage_exit_code = 2;
    std::filesystem::path sysfs{"/sys"};
    bool is_copy = false;
    auto const arguments = std::span<char const* const>{argv, static_cast<std::size_t>(argc)}.subspan(1);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string_view const argument{arguments[i]};
        if (argument == "-h" || argument == "--help") {
            std::cout << help;
            return EXIT_SUCCESS;
        }
        if (argument == "--sysfs" && i + 1 < arguments.size()) {
            sysfs = arguments[++i];
            is_copy = true;
        } else {
            std::cerr << "topology_discovery: what is '" << argument << "'?\n" << help;
            return usage_exit_code;
        }
    }
    try {
        auto const gpus = is_copy ? topology::gpus_of_pci_bus(sysfs) : topology::gpus_of_nvml();
        auto const machine = topology::read_topology(sysfs, gpus);
        std::vector<int> usable;
        if (is_copy) {
            for (auto const& cpu : machine.cpus) {
                usable.push_back(cpu.id);
            }
        } else {
            usable = topology::usable_cpus();
        }
        std::cout << topology::to_json(machine, host_name(), usable);
    } catch (std::exception const& error) {
        std::cerr << "topology_discovery: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

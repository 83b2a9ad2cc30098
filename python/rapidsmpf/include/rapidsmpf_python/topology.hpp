// Binding this process, for Python. None of these needs the GIL.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/topology/binding.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/memory_policy.hpp>
#include <rapidsmpf/topology/detail/nvml.hpp>

namespace rapidsmpf::python {

// One, or none where there is no GPU.
[[nodiscard]] inline std::vector<topology::Binding> own_binding() {
    auto const* const device = std::getenv("RAPIDSMPF_DEVICE");
    if (device != nullptr && std::string{device} == "cpu") {
        return {};
    }
    auto const gpus = topology::gpus_of_nvml();
    if (gpus.empty()) {
        return {};
    }
    auto const found = topology::plan_own_binding(
        topology::read_topology("/sys", gpus), topology::usable_cpus(), std::getenv("CUDA_VISIBLE_DEVICES"));
    return found ? std::vector{*found} : std::vector<topology::Binding>{};
}

// What each of several ranks without a GPU gets of what this process may use.
[[nodiscard]] inline std::vector<topology::Binding> shares(std::size_t count) {
    return topology::plan_bindings(
        topology::read_topology("/sys", {}), topology::usable_cpus(), topology::RankGpus(count));
}

inline void bind_cpus(std::vector<int> const& cpus) {
    if (auto const error = topology::bind_process_to_cpus(cpus)) {
        throw SystemError{"cannot bind this process to CPUs " + topology::format_list(cpus), error};
    }
}

inline void prefer_memory(std::vector<int> const& nodes) {
    if (auto const error = topology::prefer_memory_of(topology::NodeMask{nodes})) {
        throw SystemError{"cannot prefer the memory of NUMA nodes " + topology::format_list(nodes), error};
    }
}

}  // namespace rapidsmpf::python

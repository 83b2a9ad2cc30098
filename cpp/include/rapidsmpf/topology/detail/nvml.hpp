// The GPUs that NVIDIA's management library knows. It is opened at run time, never linked.
#pragma once

#include <string>
#include <vector>

#include <rapidsmpf/topology/topology.hpp>

namespace rapidsmpf::topology {

// In NVML's order, which is that of the PCI bus. Empty where there is no driver.
[[nodiscard]] std::vector<GpuName> gpus_of_nvml();

// "00000000:3B:00.0" -> "0000:3b:00.0".
[[nodiscard]] std::string sysfs_bus_id(std::string const& bus_id);

}  // namespace rapidsmpf::topology

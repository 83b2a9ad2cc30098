// The GPUs that NVIDIA's management library knows. It is opened at run time, never linked.
#pragma once

#include <string>
#include <vector>

namespace rapidsmpf::topology {

// How a GPU is called; where it is, the PCI tree says.
struct GpuName {
    std::string name;        // "NVIDIA H100 80GB HBM3"
    std::string uuid;        // "GPU-..."
    std::string pci_bus_id;  // as in sysfs: "0000:17:00.0"
};

// In NVML's order, which is that of the PCI bus. Empty where there is no driver.
[[nodiscard]] std::vector<GpuName> gpus_of_nvml();

// "00000000:3B:00.0" -> "0000:3b:00.0".
[[nodiscard]] std::string sysfs_bus_id(std::string const& bus_id);

}  // namespace rapidsmpf::topology

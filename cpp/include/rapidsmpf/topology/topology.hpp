// What this machine is made of and what is near to what: CPUs, NUMA nodes, GPUs and network devices, read from the
// kernel's sysfs. Plain values, owned by the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rapidsmpf::topology {

struct Cpu {
    int id{0};
    int node{0};     // NUMA node
    int package{0};  // socket
    int core{0};     // CPUs of the same package and core are hardware threads of one core
};

struct NumaNode {
    int id{0};
    std::vector<int> cpus;
    std::uint64_t memory_bytes{0};
    std::map<int, int> distances;  // by node; 10 is the node itself
};

// Where a device hangs in the PCI tree.
struct PciPlace {
    std::string bus_id;             // "0000:17:00.0"; empty: none
    int node{-1};                   // NUMA node, -1: not known
    std::vector<std::string> path;  // from the root port to the device
    std::vector<int> local_cpus;    // may be of several nodes; empty: not known
};

// How a GPU is called; where it is, the PCI tree says.
struct GpuName {
    std::string name;        // "NVIDIA H100 80GB HBM3"
    std::string uuid;        // "GPU-..."
    std::string pci_bus_id;  // as in sysfs: "0000:17:00.0"
};

struct Gpu {
    int index{0};
    std::string name;
    std::string uuid;
    PciPlace place;
};

enum class NetworkKind : std::uint8_t { infiniband, ethernet };

struct NetworkDevice {
    std::string name;  // "mlx5_0", "eth0"
    NetworkKind kind{NetworkKind::ethernet};
    PciPlace place;
    std::vector<int> active_ports;  // of InfiniBand and RoCE
    bool up{false};
    // As UCX_NET_DEVICES names them: "mlx5_0:1" per active port, or the interface.
    [[nodiscard]] std::vector<std::string> ucx_names() const;
};

struct Topology {
    std::vector<Cpu> cpus;  // those online; neighbours first: by node, package, core
    std::vector<NumaNode> nodes;
    std::vector<Gpu> gpus;
    std::vector<NetworkDevice> network;  // physical ones only

    [[nodiscard]] Cpu const* find_cpu(int id) const;
    // 10 for the same node, larger the farther; large when unknown.
    [[nodiscard]] int distance(int from, int to) const;
    // The nodes of these CPUs, ascending.
    [[nodiscard]] std::vector<int> nodes_of(std::vector<int> const& cpus) const;
};

// Reads the tree below `sysfs` ("/sys"). What cannot be read is taken as not there; a machine that tells nothing about
// NUMA is one node. `gpus` says which GPUs count, in their order.
[[nodiscard]] Topology read_topology(std::filesystem::path const& sysfs, std::vector<GpuName> const& gpus);

// The NVIDIA GPUs that the PCI bus of a tree shows, whether or not there is a driver.
[[nodiscard]] std::vector<GpuName> gpus_of_pci_bus(std::filesystem::path const& sysfs);

}  // namespace rapidsmpf::topology

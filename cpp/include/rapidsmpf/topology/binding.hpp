// Which part of a machine each of its ranks gets: CPUs, memory and network devices near the rank's GPU, or near each
// other where there is none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/topology/topology.hpp>

namespace rapidsmpf::topology {

struct Binding {
    // Only this rank's, unless there are more ranks than cores.
    std::vector<int> cpus;
    // The NUMA nodes of these CPUs; empty where there is only one node.
    std::vector<int> memory_nodes;
    // For UCX_NET_DEVICES; empty where all are equally near, or there is nothing to choose from.
    std::vector<std::string> network_devices;
};

// For each rank of this machine the GPU that it uses, as an index into Topology::gpus.
using RankGpus = std::vector<std::optional<std::size_t>>;

// A rank with a GPU gets an equal share of the cores near it, between the ranks whose GPUs are near the same cores; a
// rank without one, or whose GPU's cores may not be used, an equal share of all. Shares are of whole cores, contiguous
// in the order of NUMA nodes; with more ranks than cores each gets one CPU, in turn. `usable`: what may be used.
[[nodiscard]] std::vector<Binding> plan_bindings(
    Topology const& topology, std::vector<int> const& usable, RankGpus const& gpus);

// Ranks take the GPUs `chosen` (indices) in turn.
[[nodiscard]] RankGpus share_gpus(std::size_t nranks, std::vector<std::size_t> const& chosen);

// The GPU that CUDA_VISIBLE_DEVICES names so: by its number, its UUID or the beginning of that. None for what has no place
// in the topology, such as a part of a GPU (MIG).
[[nodiscard]] std::optional<std::size_t> find_gpu(Topology const& topology, std::string const& name);

// For a process that no launcher has placed: what is near its GPU, the first of `visible` (CUDA_VISIBLE_DEVICES; null: all
// are). None without a GPU: then nothing is nearer than the rest.
[[nodiscard]] std::optional<Binding> plan_own_binding(
    Topology const& topology, std::vector<int> const& usable, char const* visible);

// UCX's names of the InfiniBand devices that are nearest to a place: behind the same PCI switch, or else on the nearest
// NUMA node.
[[nodiscard]] std::vector<std::string> nearest_network(Topology const& topology, PciPlace const& place);
[[nodiscard]] std::vector<std::string> nearest_network(
    Topology const& topology, std::vector<int> const& nodes);

// The usable CPUs next to a GPU; empty when they are not known.
[[nodiscard]] std::vector<int> cpus_near(
    Topology const& topology, PciPlace const& place, std::vector<int> const& usable);

}  // namespace rapidsmpf::topology

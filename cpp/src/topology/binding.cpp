#include <rapidsmpf/topology/binding.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace rapidsmpf::topology {

namespace {

// The hardware threads of one core.
using Core = std::vector<int>;

// The cores of these CPUs, neighbours first. What the topology does not know is a core of its own, at the end.
std::vector<Core> cores_of(Topology const& topology, std::vector<int> const& cpus) {
    constexpr int last = std::numeric_limits<int>::max();
    std::map<std::tuple<int, int, int>, Core> cores;
    for (auto const id : cpus) {
        auto const* const cpu = topology.find_cpu(id);
        auto const key =
            cpu != nullptr ? std::tuple{cpu->node, cpu->package, cpu->core} : std::tuple{last, last, id};
        cores[key].push_back(id);
    }
    std::vector<Core> ordered;
    ordered.reserve(cores.size());
    for (auto& [key, core] : cores) {
        ordered.push_back(std::move(core));
    }
    return ordered;
}

std::vector<int> share_of(std::vector<Core> const& cores, std::size_t index, std::size_t count) {
    std::vector<int> cpus;
    if (cores.empty()) {
        return cpus;
    }
    if (count > cores.size()) {
        // In turn over the CPUs, the first hardware thread of every core before any second one.
        std::vector<std::pair<std::size_t, int>> turns;
        for (auto const& core : cores) {
            for (std::size_t thread = 0; thread < core.size(); ++thread) {
                turns.emplace_back(thread, core[thread]);
            }
        }
        std::stable_sort(
            turns.begin(), turns.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
        return {turns[index % turns.size()].second};
    }
    for (auto i = index * cores.size() / count; i < (index + 1) * cores.size() / count; ++i) {
        cpus.insert(cpus.end(), cores[i].begin(), cores[i].end());
    }
    std::sort(cpus.begin(), cpus.end());
    return cpus;
}

std::size_t common_path(PciPlace const& a, PciPlace const& b) {
    auto const [at, other] = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
    return static_cast<std::size_t>(at - a.path.begin());
}

// The InfiniBand devices with the smallest score; none when all have the same, because then there is no choice to make
// and UCX knows better.
template <typename Score>
std::vector<std::string> choose_network(Topology const& topology, Score const& score) {
    using Value = decltype(score(std::declval<NetworkDevice const&>()));
    std::vector<std::pair<Value, NetworkDevice const*>> candidates;
    for (auto const& device : topology.network) {
        if (device.kind == NetworkKind::infiniband && device.up) {
            candidates.emplace_back(score(device), &device);
        }
    }
    std::vector<std::string> names;
    if (candidates.empty()) {
        return names;
    }
    auto const [best, worst] = std::minmax_element(
        candidates.begin(), candidates.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    if (best->first == worst->first) {
        return names;
    }
    auto const limit = best->first;
    for (auto const& [value, device] : candidates) {
        if (value == limit) {
            auto const of_device = device->ucx_names();
            names.insert(names.end(), of_device.begin(), of_device.end());
        }
    }
    return names;
}

}  // namespace

std::vector<std::string> nearest_network(Topology const& topology, PciPlace const& place) {
    return choose_network(topology, [&](NetworkDevice const& device) {
        // Two devices below one switch share more of their path than the root complex.
        auto const shared = common_path(place, device.place);
        return std::pair{
            shared > 1 ? -static_cast<long>(shared) : 0L, topology.distance(place.node, device.place.node)};
    });
}

std::vector<std::string> nearest_network(Topology const& topology, std::vector<int> const& nodes) {
    return choose_network(topology, [&](NetworkDevice const& device) {
        int best = std::numeric_limits<int>::max();
        for (auto const node : nodes) {
            best = std::min(best, topology.distance(node, device.place.node));
        }
        return best;
    });
}

std::vector<int> cpus_near(Topology const& topology, PciPlace const& place, std::vector<int> const& usable) {
    std::vector<int> near;
    for (auto const id : usable) {
        auto const* const cpu = topology.find_cpu(id);
        bool const local = place.local_cpus.empty()
                               ? cpu != nullptr && place.node >= 0 && cpu->node == place.node
                               : std::binary_search(place.local_cpus.begin(), place.local_cpus.end(), id);
        if (local) {
            near.push_back(id);
        }
    }
    return near;
}

RankGpus share_gpus(std::size_t nranks, std::vector<std::size_t> const& chosen) {
    RankGpus gpus(nranks);
    for (std::size_t rank = 0; rank < nranks && !chosen.empty(); ++rank) {
        gpus[rank] = chosen[rank % chosen.size()];
    }
    return gpus;
}

std::vector<Binding> plan_bindings(
    Topology const& topology, std::vector<int> const& usable, RankGpus const& gpus) {
    auto const nranks = gpus.size();
    std::vector<std::vector<int>> near(nranks);
    std::map<std::vector<int>, std::size_t> ranks_near;
    for (std::size_t rank = 0; rank < nranks; ++rank) {
        if (gpus[rank]) {
            near[rank] = cpus_near(topology, topology.gpus.at(*gpus[rank]).place, usable);
        }
        ++ranks_near[near[rank]];
    }
    std::map<std::vector<int>, std::size_t> taken;
    std::vector<Binding> bindings(nranks);
    for (std::size_t rank = 0; rank < nranks; ++rank) {
        auto& binding = bindings[rank];
        bool const anywhere = near[rank].empty();
        auto const cores = cores_of(topology, anywhere ? usable : near[rank]);
        binding.cpus = anywhere ? share_of(cores, rank, nranks)
                                : share_of(cores, taken[near[rank]]++, ranks_near.at(near[rank]));
        auto const nodes = topology.nodes_of(binding.cpus);
        if (topology.nodes.size() > 1) {
            binding.memory_nodes = nodes;
        }
        auto const* const place = gpus[rank] ? &topology.gpus.at(*gpus[rank]).place : nullptr;
        binding.network_devices = place != nullptr && !place->path.empty() ? nearest_network(topology, *place)
                                                                           : nearest_network(topology, nodes);
    }
    return bindings;
}

std::optional<std::size_t> find_gpu(Topology const& topology, std::string const& name) {
    std::size_t number = 0;
    auto const* const end = name.data() + name.size();
    auto const [stop, error] = std::from_chars(name.data(), end, number);
    if (error == std::errc{} && stop == end) {
        return number < topology.gpus.size() ? std::optional{number} : std::nullopt;
    }
    auto const found = std::find_if(topology.gpus.begin(), topology.gpus.end(), [&](Gpu const& gpu) {
        return !name.empty() && gpu.uuid.starts_with(name);
    });
    if (found == topology.gpus.end()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(found - topology.gpus.begin());
}

std::optional<Binding> plan_own_binding(
    Topology const& topology, std::vector<int> const& usable, char const* visible) {
    std::string const all = visible == nullptr ? "0" : visible;
    auto const gpu = find_gpu(topology, all.substr(0, all.find(',')));
    if (!gpu) {
        return std::nullopt;
    }
    return plan_bindings(topology, usable, {gpu}).front();
}

}  // namespace rapidsmpf::topology

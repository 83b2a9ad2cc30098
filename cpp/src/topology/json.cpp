#include <rapidsmpf/topology/detail/json.hpp>

#include <set>
#include <utility>

#include <rapidsmpf/core/detail/json_writer.hpp>
#include <rapidsmpf/topology/binding.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>

namespace rapidsmpf::topology {

std::string to_json(Topology const& topology, std::string_view host, std::vector<int> const& usable) {
    JsonWriter json;
    std::set<std::pair<int, int>> cores;
    std::set<int> packages;
    std::vector<int> all;
    for (auto const& cpu : topology.cpus) {
        cores.emplace(cpu.package, cpu.core);
        packages.insert(cpu.package);
        all.push_back(cpu.id);
    }
    json.begin_object();
    json.key("system").begin_object();
    json.field("hostname", host).field("cpus", all.size()).field("cores", cores.size());
    json.field("sockets", packages.size()).field("numa_nodes", topology.nodes.size());
    json.field("gpus", topology.gpus.size()).field("network_devices", topology.network.size());
    json.field("usable_cpus", format_list(usable));
    json.end_object();
    json.key("numa_nodes").begin_array();
    for (auto const& node : topology.nodes) {
        json.begin_object().field("id", node.id).field("cpulist", format_list(node.cpus));
        json.field("memory_bytes", node.memory_bytes);
        json.key("distances").begin_object();
        for (auto const& [other, distance] : node.distances) {
            json.field(std::to_string(other), distance);
        }
        json.end_object().end_object();
    }
    json.end_array();
    json.key("gpus").begin_array();
    for (auto const& gpu : topology.gpus) {
        auto const near = cpus_near(topology, gpu.place, all);
        json.begin_object().field("id", gpu.index).field("name", gpu.name).field("uuid", gpu.uuid);
        json.field("pci_bus_id", gpu.place.bus_id).field("numa_node", gpu.place.node);
        json.key("cpu_affinity").begin_object();
        json.field("cpulist", format_list(near)).field("cores", near);
        json.end_object();
        json.field("memory_binding", topology.nodes_of(near));
        json.field("network_devices", nearest_network(topology, gpu.place));
        json.end_object();
    }
    json.end_array();
    json.key("network_devices").begin_array();
    for (auto const& device : topology.network) {
        json.begin_object().field("name", device.name);
        json.field("type", device.kind == NetworkKind::infiniband ? "infiniband" : "ethernet");
        json.field("pci_bus_id", device.place.bus_id).field("numa_node", device.place.node);
        json.field("up", device.up).field("active_ports", device.active_ports);
        json.field("ucx_names", device.ucx_names());
        json.end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

}  // namespace rapidsmpf::topology

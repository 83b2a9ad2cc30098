#include <rapidsmpf/topology/detail/json.hpp>

#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include <rapidsmpf/topology/binding.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>

namespace rapidsmpf::topology {

void JsonWriter::place() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (depth_ == 0) {
        return;
    }
    text_ += first_ ? "\n" : ",\n";
    text_.append(2 * depth_, ' ');
    first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
    place();
    text_ += bracket;
    ++depth_;
    first_ = true;
    return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
    --depth_;
    if (!first_) {
        text_ += '\n';
        text_.append(2 * depth_, ' ');
    }
    text_ += bracket;
    first_ = false;
    return *this;
}

void JsonWriter::quote(std::string_view text) {
    text_ += '"';
    for (char const c : text) {
        if (c == '"' || c == '\\') {
            text_ += '\\';
            text_ += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            std::array<char, 8> code{};
            std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
            text_ += code.data();
        } else {
            text_ += c;
        }
    }
    text_ += '"';
}

JsonWriter& JsonWriter::key(std::string_view name) {
    place();
    quote(name);
    text_ += ": ";
    after_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    place();
    quote(text);
    return *this;
}

JsonWriter& JsonWriter::literal(std::string_view text) {
    place();
    text_ += text;
    return *this;
}

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

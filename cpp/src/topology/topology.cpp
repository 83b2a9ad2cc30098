#include <rapidsmpf/topology/topology.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <tuple>

#include <rapidsmpf/topology/detail/cpus.hpp>

namespace rapidsmpf::topology {

namespace {

namespace fs = std::filesystem;

constexpr int near = 10;          // ACPI's distance of a node to itself
constexpr int unknown_far = 255;  // and of what cannot be reached

std::string read_text(fs::path const& path) {
    std::ifstream file{path};
    std::string text{std::istreambuf_iterator<char>{file}, {}};
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
        text.pop_back();
    }
    return text;
}

int read_number(fs::path const& path, int otherwise) {
    auto const text = read_text(path);
    int value = 0;
    auto const [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && stop != text.data() ? value : otherwise;
}

// The entries of a folder by name; none if it cannot be read.
std::vector<fs::path> entries_of(fs::path const& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error)) {
        found.push_back(entry->path());
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<NumaNode> read_nodes(fs::path const& sysfs, std::vector<int> const& online) {
    auto const root = sysfs / "devices/system/node";
    std::vector<NumaNode> nodes;
    auto const ids = parse_list(read_text(root / "online"));
    for (int const id : ids) {
        auto const folder = root / ("node" + std::to_string(id));
        NumaNode node;
        node.id = id;
        for (int const cpu : parse_list(read_text(folder / "cpulist"))) {
            if (std::binary_search(online.begin(), online.end(), cpu)) {
                node.cpus.push_back(cpu);
            }
        }
        std::istringstream distances{read_text(folder / "distance")};
        for (auto const other : ids) {
            int distance = 0;
            if (distances >> distance) {
                node.distances[other] = distance;
            }
        }
        std::istringstream words{read_text(folder / "meminfo")};  // "Node 0 MemTotal:  12345 kB"
        for (std::string word; words >> word;) {
            if (word == "MemTotal:" && words >> node.memory_bytes) {
                node.memory_bytes *= 1024;
                break;
            }
        }
        nodes.push_back(std::move(node));
    }
    if (std::all_of(nodes.begin(), nodes.end(), [](NumaNode const& node) { return node.cpus.empty(); })) {
        NumaNode all;
        all.cpus = online;
        all.distances[0] = near;
        nodes.assign(1, all);
    }
    return nodes;
}

std::vector<Cpu> read_cpus(
    fs::path const& sysfs, std::vector<int> const& online, std::vector<NumaNode> const& nodes) {
    std::map<int, int> node_of;
    for (auto const& node : nodes) {
        for (auto const cpu : node.cpus) {
            node_of[cpu] = node.id;
        }
    }
    std::vector<Cpu> cpus;
    for (auto const id : online) {
        auto const folder = sysfs / "devices/system/cpu" / ("cpu" + std::to_string(id)) / "topology";
        Cpu cpu;
        cpu.id = id;
        cpu.node = node_of.contains(id) ? node_of.at(id) : nodes.front().id;
        cpu.package = read_number(folder / "physical_package_id", 0);
        cpu.core = read_number(folder / "core_id", id);  // a core of its own, if there is no such file
        cpus.push_back(cpu);
    }
    std::sort(cpus.begin(), cpus.end(), [](Cpu const& a, Cpu const& b) {
        return std::tie(a.node, a.package, a.core, a.id) < std::tie(b.node, b.package, b.core, b.id);
    });
    return cpus;
}

// `device` is a folder of a PCI device, or a link to one.
PciPlace read_place(fs::path const& device, std::vector<NumaNode> const& nodes) {
    PciPlace place;
    std::error_code error;
    auto const real = fs::canonical(device, error);
    if (error) {
        return place;
    }
    bool below_root = false;
    for (auto const& part : real) {
        below_root = below_root || part.string().starts_with("pci");
        if (below_root) {
            place.path.push_back(part.string());
        }
    }
    place.bus_id = real.filename().string();
    place.node = read_number(real / "numa_node", -1);
    if (place.node < 0 && nodes.size() == 1) {
        place.node = nodes.front().id;
    }
    place.local_cpus = parse_list(read_text(real / "local_cpulist"));
    return place;
}

std::vector<NetworkDevice> read_network(fs::path const& sysfs, std::vector<NumaNode> const& nodes) {
    std::vector<NetworkDevice> found;
    for (auto const& folder : entries_of(sysfs / "class/infiniband")) {
        NetworkDevice device;
        device.name = folder.filename().string();
        device.kind = NetworkKind::infiniband;
        device.place = read_place(folder / "device", nodes);
        for (auto const& port : entries_of(folder / "ports")) {
            // "4: ACTIVE"
            if (auto const number = read_number(port / "state", 0); number == 4) {
                device.active_ports.push_back(std::stoi("0" + port.filename().string()));
            }
        }
        device.up = !device.active_ports.empty();
        found.push_back(std::move(device));
    }
    for (auto const& folder : entries_of(sysfs / "class/net")) {
        if (!fs::exists(folder / "device")) {
            continue;  // loopback, bridges, tunnels
        }
        NetworkDevice device;
        device.name = folder.filename().string();
        device.kind = NetworkKind::ethernet;
        device.place = read_place(folder / "device", nodes);
        device.up = read_text(folder / "operstate") == "up";
        found.push_back(std::move(device));
    }
    return found;
}

}  // namespace

std::vector<std::string> NetworkDevice::ucx_names() const {
    if (kind == NetworkKind::ethernet) {
        return {name};
    }
    std::vector<std::string> names;
    names.reserve(active_ports.size());
    for (auto const port : active_ports) {
        names.push_back(name + ":" + std::to_string(port));
    }
    return names;
}

Cpu const* Topology::find_cpu(int id) const {
    auto const found = std::find_if(cpus.begin(), cpus.end(), [&](Cpu const& cpu) { return cpu.id == id; });
    return found == cpus.end() ? nullptr : &*found;
}

int Topology::distance(int from, int to) const {
    if (from == to) {
        return near;
    }
    auto const found =
        std::find_if(nodes.begin(), nodes.end(), [&](NumaNode const& node) { return node.id == from; });
    if (found == nodes.end()) {
        return unknown_far;
    }
    auto const entry = found->distances.find(to);
    return entry == found->distances.end() ? unknown_far : entry->second;
}

std::vector<int> Topology::nodes_of(std::vector<int> const& some) const {
    std::set<int> found;
    for (auto const id : some) {
        if (auto const* const cpu = find_cpu(id)) {
            found.insert(cpu->node);
        }
    }
    return {found.begin(), found.end()};
}

std::vector<GpuName> gpus_of_pci_bus(fs::path const& sysfs) {
    std::vector<GpuName> gpus;
    for (auto const& folder : entries_of(sysfs / "bus/pci/devices")) {
        auto const type = read_text(folder / "class");
        // Display controllers: 0x0300 VGA, 0x0302 3D.
        if (read_text(folder / "vendor") == "0x10de"
            && (type.starts_with("0x0300") || type.starts_with("0x0302"))) {
            gpus.push_back(GpuName{"", "", folder.filename().string()});
        }
    }
    return gpus;
}

Topology read_topology(fs::path const& sysfs, std::vector<GpuName> const& gpus) {
    Topology topology;
    auto const online = parse_list(read_text(sysfs / "devices/system/cpu/online"));
    topology.nodes = read_nodes(sysfs, online);
    topology.cpus = read_cpus(sysfs, online, topology.nodes);
    for (auto const& gpu : gpus) {
        Gpu found;
        found.index = static_cast<int>(topology.gpus.size());
        found.name = gpu.name;
        found.uuid = gpu.uuid;
        if (!gpu.pci_bus_id.empty()) {
            found.place = read_place(sysfs / "bus/pci/devices" / gpu.pci_bus_id, topology.nodes);
            found.place.bus_id = gpu.pci_bus_id;
        }
        topology.gpus.push_back(std::move(found));
    }
    topology.network = read_network(sysfs, topology.nodes);
    return topology;
}

}  // namespace rapidsmpf::topology

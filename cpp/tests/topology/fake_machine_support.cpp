#include "topology/fake_machine_support.hpp"

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace rapidsmpf::test {

namespace fs = std::filesystem;

FakeMachine::FakeMachine() {
    auto name = (fs::temp_directory_path() / "rapidsmpf-sysfs-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error{"no temporary folder"};
    }
    root_ = name;
}

FakeMachine::~FakeMachine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
}

void FakeMachine::write(std::string const& path, std::string const& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream{root_ / path} << text << '\n';
}

void FakeMachine::add_cpus(int packages, int cores_per_package, int threads) const {
    int const cores = packages * cores_per_package;
    write("devices/system/cpu/online", "0-" + std::to_string(cores * threads - 1));
    for (int cpu = 0; cpu < cores * threads; ++cpu) {
        auto const folder = "devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        int const core = cpu % cores;
        write(folder + "physical_package_id", std::to_string(core / cores_per_package));
        write(folder + "core_id", std::to_string(core % cores_per_package));
    }
}

void FakeMachine::add_nodes(std::vector<std::string> const& cpulists) const {
    auto const last = std::to_string(cpulists.size() - 1);
    write("devices/system/node/online", cpulists.size() == 1 ? "0" : "0-" + last);
    for (std::size_t node = 0; node < cpulists.size(); ++node) {
        auto const folder = "devices/system/node/node" + std::to_string(node) + "/";
        write(folder + "cpulist", cpulists[node]);
        std::string distances;
        for (std::size_t other = 0; other < cpulists.size(); ++other) {
            distances += (other == 0 ? "" : " ") + std::string{other == node ? "10" : "21"};
        }
        write(folder + "distance", distances);
        write(folder + "meminfo", "Node " + std::to_string(node) + " MemTotal:       1048576 kB");
    }
}

std::string FakeMachine::add_pci_device(
    std::string const& parent, std::string const& bus_id, int node, std::string const& local_cpus,
    std::string const& vendor, std::string const& type) const {
    auto const folder = "devices/" + parent + "/" + bus_id + "/";
    write(folder + "numa_node", std::to_string(node));
    if (!local_cpus.empty()) {
        write(folder + "local_cpulist", local_cpus);
    }
    if (!vendor.empty()) {
        write(folder + "vendor", vendor);
        write(folder + "class", type);
    }
    fs::create_directories(root_ / "bus/pci/devices");
    fs::create_symlink(fs::path{"../../.."} / folder, root_ / "bus/pci/devices" / bus_id);
    return folder;
}

void FakeMachine::add_gpu(
    std::string const& parent, std::string const& bus_id, int node, std::string const& local_cpus) const {
    add_pci_device(parent, bus_id, node, local_cpus, "0x10de", "0x030200");
}

void FakeMachine::add_infiniband(
    std::string const& parent, std::string const& bus_id, int node, std::string const& name,
    std::string const& state) const {
    auto const folder = add_pci_device(parent, bus_id, node, "");
    auto const own = folder + "infiniband/" + name + "/";
    write(own + "ports/1/state", state);
    fs::create_directory_symlink("../../../" + bus_id, root_ / (own + "device"));
    fs::create_directories(root_ / "class/infiniband");
    fs::create_directory_symlink(root_ / own, root_ / "class/infiniband" / name);
}

void FakeMachine::add_ethernet(
    std::string const& parent, std::string const& bus_id, int node, std::string const& name,
    std::string const& state) const {
    auto const folder = add_pci_device(parent, bus_id, node, "");
    auto const own = folder + "net/" + name + "/";
    write(own + "operstate", state);
    fs::create_directory_symlink("../../../" + bus_id, root_ / (own + "device"));
    fs::create_directories(root_ / "class/net");
    fs::create_directory_symlink(root_ / own, root_ / "class/net" / name);
}

void make_laptop(FakeMachine const& machine) {
    machine.add_cpus(1, 4, 2);
    machine.add_ethernet("pci0000:00", "0000:00:1f.6", -1, "eth0");
    machine.write("class/net/lo/operstate", "unknown");
}

void make_two_sockets(FakeMachine const& machine) {
    machine.add_cpus(2, 8, 2);
    machine.add_nodes({"0-7,16-23", "8-15,24-31"});
    machine.add_infiniband("pci0000:17/0000:17:00.0", "0000:18:00.0", 0, "mlx5_0");
    machine.add_infiniband("pci0000:97/0000:97:00.0", "0000:98:00.0", 1, "mlx5_1");
    machine.add_ethernet("pci0000:00", "0000:01:00.0", 0, "eno1");
}

void make_dgx(FakeMachine const& machine) {
    machine.add_cpus(2, 16, 1);
    machine.add_nodes({"0-15", "16-31"});
    for (int gpu = 0; gpu < 8; ++gpu) {
        int const node = gpu / 4;
        auto const root = std::string{"pci0000:"} + static_cast<char>('1' + gpu) + "0";
        auto const bridge = std::string{"0000:"} + static_cast<char>('1' + gpu) + "0:01.0";
        auto const at = [&](char device) {
            return std::string{"0000:"} + static_cast<char>('1' + gpu) + device + ":00.0";
        };
        machine.add_gpu(root + "/" + bridge, at('1'), node, node == 0 ? "0-15" : "16-31");
        machine.add_infiniband(root + "/" + bridge, at('2'), node, "mlx5_" + std::to_string(gpu));
    }
    machine.add_infiniband("pci0000:a0", "0000:a1:00.0", 0, "mlx5_8");
    machine.add_infiniband("pci0000:b0", "0000:b1:00.0", 1, "mlx5_9", "1: DOWN");
}

}  // namespace rapidsmpf::test

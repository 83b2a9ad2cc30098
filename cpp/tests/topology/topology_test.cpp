// What is read from the trees of other machines.
#include <rapidsmpf/topology/topology.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/json.hpp>
#include <rapidsmpf/topology/detail/nvml.hpp>

#include "topology/fake_machine_support.hpp"

namespace rapidsmpf::topology {
namespace {

using test::FakeMachine;

std::vector<int> ids(Topology const& machine) {
    std::vector<int> found;
    for (auto const& cpu : machine.cpus) {
        found.push_back(cpu.id);
    }
    return found;
}

TEST(CpuLists, ReadAndWritten) {
    EXPECT_EQ(format_list({}), "");
    EXPECT_EQ(format_list({3}), "3");
    EXPECT_EQ(format_list({5, 0, 1, 2, 7, 8}), "0-2,5,7-8");
    for (std::string const text : {"", "3", "0-2,5,7-8", "0-127"}) {
        EXPECT_EQ(format_list(parse_list(text)), text);
    }
    EXPECT_EQ(parse_list("5-3,x,-1,2,2-3\n"), (std::vector<int>{2, 3}));
    EXPECT_LE(parse_list("0-2147483647").size(), std::size_t{1} << 16);
}

TEST(CpuLists, ProcessMayBeBoundToWhatItMayUse) {
    auto const cpus = usable_cpus();
    ASSERT_FALSE(cpus.empty());
    EXPECT_EQ(bind_to_cpus(cpus), 0);
    EXPECT_EQ(usable_cpus(), cpus);
}

TEST(ReadTopology, Laptop) {
    FakeMachine const machine;
    test::make_laptop(machine);
    auto const read = read_topology(machine.sysfs(), gpus_of_pci_bus(machine.sysfs()));
    // Hardware threads of a core stand together.
    EXPECT_EQ(ids(read), (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}));
    ASSERT_EQ(read.nodes.size(), 1U);
    EXPECT_EQ(read.nodes[0].cpus.size(), 8U);
    EXPECT_TRUE(read.gpus.empty());
    ASSERT_EQ(read.network.size(), 1U) << "the loopback interface is no device";
    EXPECT_EQ(read.network[0].name, "eth0");
    EXPECT_EQ(read.network[0].place.node, 0) << "there is only one node";
    EXPECT_TRUE(read.network[0].up);
}

TEST(ReadTopology, TwoSockets) {
    FakeMachine const machine;
    test::make_two_sockets(machine);
    auto const read = read_topology(machine.sysfs(), {});
    ASSERT_EQ(read.nodes.size(), 2U);
    EXPECT_EQ(read.nodes[1].memory_bytes, std::uint64_t{1} << 30);
    EXPECT_EQ(read.distance(0, 1), 21);
    EXPECT_EQ(read.distance(1, 1), 10);
    EXPECT_GT(read.distance(0, 7), 21) << "no such node";
    EXPECT_EQ(read.find_cpu(24)->node, 1);
    EXPECT_EQ(read.find_cpu(99), nullptr);
    EXPECT_EQ(read.nodes_of({0, 31, 99}), (std::vector<int>{0, 1}));
    ASSERT_EQ(read.network.size(), 3U);
    EXPECT_EQ(read.network[1].place.bus_id, "0000:98:00.0");
    EXPECT_EQ(
        read.network[1].place.path, (std::vector<std::string>{"pci0000:97", "0000:97:00.0", "0000:98:00.0"}));
    EXPECT_EQ(read.network[1].ucx_names(), std::vector<std::string>{"mlx5_1:1"});
}

TEST(ReadTopology, Dgx) {
    FakeMachine const machine;
    test::make_dgx(machine);
    auto const read = read_topology(machine.sysfs(), gpus_of_pci_bus(machine.sysfs()));
    ASSERT_EQ(read.gpus.size(), 8U);
    EXPECT_EQ(read.gpus[5].index, 5);
    EXPECT_EQ(read.gpus[5].place.node, 1);
    EXPECT_EQ(format_list(read.gpus[5].place.local_cpus), "16-31");
    ASSERT_EQ(read.network.size(), 10U);
    EXPECT_FALSE(read.network[9].up);
    EXPECT_TRUE(read.network[9].ucx_names().empty());
}

TEST(ReadTopology, EmptyTreeIsOneNodeWithoutAnything) {
    FakeMachine const machine;
    auto const read = read_topology(machine.sysfs() / "nothing", {GpuName{"a GPU", "GPU-1", "0000:01:00.0"}});
    EXPECT_TRUE(read.cpus.empty());
    EXPECT_EQ(read.nodes.size(), 1U);
    ASSERT_EQ(read.gpus.size(), 1U);
    EXPECT_EQ(read.gpus[0].place.node, -1);
}

TEST(ReadTopology, ThisMachineHasTheCpusThatWeMayUse) {
    auto const read = read_topology("/sys", {});
    if (read.cpus.empty()) {
        GTEST_SKIP() << "/sys tells nothing here";
    }
    for (auto const cpu : usable_cpus()) {
        EXPECT_NE(read.find_cpu(cpu), nullptr) << cpu;
    }
}

TEST(Nvml, BusIdsBecomeThoseOfSysfs) {
    EXPECT_EQ(sysfs_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
    EXPECT_EQ(sysfs_bus_id("0000:3B:00.0"), "0000:3b:00.0");
    EXPECT_EQ(sysfs_bus_id("00010000:3B:00.0"), "00010000:3b:00.0");
    EXPECT_EQ(sysfs_bus_id(""), "");
}

TEST(TopologyJson, TellsWhatIsNearAGpu) {
    FakeMachine const machine;
    test::make_dgx(machine);
    auto const read = read_topology(machine.sysfs(), gpus_of_pci_bus(machine.sysfs()));
    auto const text = to_json(read, "a \"host\"\n", {0, 1});
    for (std::string const part :
         {R"("hostname": "a \"host\"\u000a")", R"("usable_cpus": "0-1")", R"("cpulist": "16-31")",
          R"("pci_bus_id": "0000:81:00.0")", R"("mlx5_7:1")", R"("network_devices": 10)"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

}  // namespace
}  // namespace rapidsmpf::topology

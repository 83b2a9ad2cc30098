// What each rank of a machine gets.
#include <rapidsmpf/topology/binding.hpp>

#include <algorithm>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/topology/detail/cpus.hpp>
#include <rapidsmpf/topology/detail/memory_policy.hpp>

#include "topology/fake_machine_support.hpp"

namespace rapidsmpf::topology {
namespace {

using test::FakeMachine;

class OnMachine {
  public:
    explicit OnMachine(void (*make)(FakeMachine const&)) {
        make(machine_);
        topology = read_topology(machine_.sysfs(), gpus_of_pci_bus(machine_.sysfs()));
        for (auto const& cpu : topology.cpus) {
            usable.push_back(cpu.id);
        }
        std::sort(usable.begin(), usable.end());
    }
    [[nodiscard]] std::vector<Binding> plan(
        std::size_t nranks, std::vector<std::size_t> const& gpus = {}) const {
        return plan_bindings(topology, usable, share_gpus(nranks, gpus));
    }

    Topology topology;
    std::vector<int> usable;

  private:
    FakeMachine machine_;
};

std::vector<std::string> cpu_texts(std::vector<Binding> const& bindings) {
    std::vector<std::string> texts;
    for (auto const& binding : bindings) {
        texts.push_back(format_list(binding.cpus));
    }
    return texts;
}

TEST(Binding, LaptopSharesWholeCores) {
    OnMachine const laptop{test::make_laptop};
    EXPECT_EQ(cpu_texts(laptop.plan(1)), std::vector<std::string>{"0-7"});
    EXPECT_EQ(cpu_texts(laptop.plan(2)), (std::vector<std::string>{"0-1,4-5", "2-3,6-7"}));
    EXPECT_EQ(cpu_texts(laptop.plan(3)), (std::vector<std::string>{"0,4", "1,5", "2-3,6-7"}));
    // One core each, and then in turn: no second hardware thread before every core has a rank.
    EXPECT_EQ(cpu_texts(laptop.plan(6)), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
    EXPECT_EQ(laptop.plan(9).back().cpus, std::vector<int>{0});
    for (auto const& binding : laptop.plan(2)) {
        EXPECT_TRUE(binding.memory_nodes.empty()) << "one node: nothing to choose";
        EXPECT_TRUE(binding.network_devices.empty());
    }
}

TEST(Binding, SocketsAreNotMixedWhenTheRanksFit) {
    OnMachine const server{test::make_two_sockets};
    auto const two = server.plan(2);
    EXPECT_EQ(cpu_texts(two), (std::vector<std::string>{"0-7,16-23", "8-15,24-31"}));
    EXPECT_EQ(two[0].memory_nodes, std::vector<int>{0});
    EXPECT_EQ(two[1].memory_nodes, std::vector<int>{1});
    EXPECT_EQ(two[0].network_devices, std::vector<std::string>{"mlx5_0:1"});
    EXPECT_EQ(two[1].network_devices, std::vector<std::string>{"mlx5_1:1"});
    auto const one = server.plan(1);
    EXPECT_EQ(one[0].memory_nodes, (std::vector<int>{0, 1}));
    EXPECT_TRUE(one[0].network_devices.empty()) << "both are equally near";
}

TEST(Binding, SharesAreEqualCompleteAndNobodyElses) {
    OnMachine const server{test::make_two_sockets};
    for (std::size_t nranks = 1; nranks <= 16; ++nranks) {
        std::multiset<int> all;
        for (auto const& binding : server.plan(nranks)) {
            EXPECT_GE(binding.cpus.size(), 2 * (16 / nranks));
            EXPECT_LE(binding.cpus.size(), 2 * (16 / nranks + 1));
            all.insert(binding.cpus.begin(), binding.cpus.end());
        }
        EXPECT_EQ(std::vector<int>(all.begin(), all.end()), server.usable) << nranks << " ranks";
    }
}

TEST(Binding, OnlyUsableCpusAreShared) {
    OnMachine server{test::make_two_sockets};
    server.usable = {3, 19, 9, 25, 26, 77};  // as a container's set of CPUs; 77 is not in the tree
    EXPECT_EQ(cpu_texts(server.plan(2)), (std::vector<std::string>{"3,9,19,25", "26,77"}));
    std::multiset<int> all;
    for (auto const& binding : server.plan(4)) {
        EXPECT_FALSE(binding.cpus.empty());
        all.insert(binding.cpus.begin(), binding.cpus.end());
    }
    EXPECT_EQ(all, (std::multiset<int>{3, 9, 19, 25, 26, 77}));
    server.usable = {};
    EXPECT_TRUE(server.plan(2)[1].cpus.empty()) << "nothing is known: nothing is bound";
}

TEST(Binding, DgxRanksAreNearTheirGpus) {
    OnMachine const dgx{test::make_dgx};
    auto const all = dgx.plan(8, {0, 1, 2, 3, 4, 5, 6, 7});
    for (std::size_t rank = 0; rank < 8; ++rank) {
        auto const first = static_cast<int>(4 * rank);
        EXPECT_EQ(format_list(all[rank].cpus), format_list({first, first + 1, first + 2, first + 3})) << rank;
        EXPECT_EQ(all[rank].memory_nodes, std::vector<int>{rank < 4 ? 0 : 1});
        EXPECT_EQ(all[rank].network_devices, std::vector<std::string>{"mlx5_" + std::to_string(rank) + ":1"});
    }
    // Two ranks with GPUs of one socket leave the other socket alone.
    EXPECT_EQ(cpu_texts(dgx.plan(2, {6, 4})), (std::vector<std::string>{"16-23", "24-31"}));
    // Two ranks on one GPU share what is near it.
    auto const shared = dgx.plan(2, {1});
    EXPECT_EQ(cpu_texts(shared), (std::vector<std::string>{"0-7", "8-15"}));
    EXPECT_EQ(shared[0].network_devices, shared[1].network_devices);
}

TEST(Binding, GpuWhoseCoresMayNotBeUsedGetsOthers) {
    OnMachine dgx{test::make_dgx};
    dgx.usable = {0, 1, 2, 3};
    EXPECT_EQ(cpu_texts(dgx.plan(2, {6, 7})), (std::vector<std::string>{"0-1", "2-3"}));
}

TEST(Binding, GpusGoInTurn) {
    auto const gpus = share_gpus(3, {5, 2});
    EXPECT_EQ(gpus, (RankGpus{5, 2, 5}));
    EXPECT_EQ(share_gpus(2, {}), (RankGpus{std::nullopt, std::nullopt}));
}

TEST(MemoryPolicy, MaskHoldsItsNodes) {
    EXPECT_EQ(
        NodeMask(std::vector<int>{0, 63, 64, 1023, 1024, -1}).nodes(), (std::vector<int>{0, 63, 64, 1023}));
    EXPECT_TRUE(NodeMask{}.empty());
    EXPECT_EQ(prefer_memory_of(NodeMask{}), 0) << "nothing to do";
}

TEST(MemoryPolicy, PreferredNodesAreWhatTheKernelTells) {
    if (int const error = prefer_memory_of(NodeMask{std::vector<int>{0}}); error != 0) {
        GTEST_SKIP() << "set_mempolicy is not permitted here: error " << error;
    }
    auto const current = current_memory_policy();
    EXPECT_TRUE(current.policy == MemoryPolicy::preferred_many || current.policy == MemoryPolicy::preferred);
    EXPECT_EQ(current.nodes, std::vector<int>{0});
}

TEST(OwnBinding, IsWhatIsNearToTheFirstVisibleGpu) {
    OnMachine const dgx{test::make_dgx};
    auto const all = plan_own_binding(dgx.topology, dgx.usable, nullptr);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->cpus, dgx.plan(1, {0}).front().cpus);
    EXPECT_EQ(all->memory_nodes, std::vector<int>{0});
    EXPECT_EQ(all->network_devices.size(), 1U);
    auto const last = plan_own_binding(dgx.topology, dgx.usable, "7,0");
    ASSERT_TRUE(last);
    EXPECT_EQ(last->cpus, dgx.plan(1, {7}).front().cpus);
    EXPECT_EQ(last->memory_nodes, std::vector<int>{1});
    EXPECT_NE(last->network_devices, all->network_devices);
}

TEST(OwnBinding, IsNothingWithoutAGpu) {
    OnMachine const dgx{test::make_dgx};
    for (auto const* const visible : {"", "8", "-1", "MIG-1234", "nonsense"}) {
        EXPECT_FALSE(plan_own_binding(dgx.topology, dgx.usable, visible)) << visible;
    }
    OnMachine const laptop{test::make_laptop};
    EXPECT_FALSE(plan_own_binding(laptop.topology, laptop.usable, nullptr));
}

TEST(OwnBinding, ReachesThreadsThatRunAlready) {
    auto const before = usable_cpus();
    std::latch ready{1};
    std::latch bound{1};
    std::vector<int> seen;
    std::thread other{[&] {
        ready.count_down();
        bound.wait();
        seen = usable_cpus();
    }};
    ready.wait();
    EXPECT_EQ(bind_process_to_cpus(std::vector{before.front()}), 0);
    bound.count_down();
    other.join();
    EXPECT_EQ(seen, std::vector{before.front()});
    EXPECT_EQ(usable_cpus(), std::vector{before.front()});
    EXPECT_NE(bind_process_to_cpus(std::vector{(1 << 16) - 1}), 0) << "there is no such CPU";
    EXPECT_EQ(bind_process_to_cpus(before), 0);
}

}  // namespace
}  // namespace rapidsmpf::topology

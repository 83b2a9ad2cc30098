// Trees like the /sys of other machines, in a temporary folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rapidsmpf::test {

// Writes a tree below a fresh folder, and removes it in the end.
class FakeMachine {
  public:
    FakeMachine();
    ~FakeMachine();
    FakeMachine(FakeMachine const&) = delete;
    FakeMachine& operator=(FakeMachine const&) = delete;

    [[nodiscard]] std::filesystem::path const& sysfs() const noexcept { return root_; }

    void write(std::string const& path, std::string const& text) const;
    // CPUs numbered as Linux does: the first hardware threads of all cores, then the second ones.
    void add_cpus(int packages, int cores_per_package, int threads) const;
    // A node per entry, with these CPUs; the distance between two is 21.
    void add_nodes(std::vector<std::string> const& cpulists) const;
    // `parent`: "pci0000:00/0000:00:01.0". Gives the device's folder below the tree.
    std::string add_pci_device(
        std::string const& parent, std::string const& bus_id, int node, std::string const& local_cpus,
        std::string const& vendor = "", std::string const& type = "") const;
    void add_gpu(
        std::string const& parent, std::string const& bus_id, int node, std::string const& local_cpus) const;
    void add_infiniband(
        std::string const& parent, std::string const& bus_id, int node, std::string const& name,
        std::string const& state = "4: ACTIVE") const;
    void add_ethernet(
        std::string const& parent, std::string const& bus_id, int node, std::string const& name,
        std::string const& state = "up") const;

  private:
    std::filesystem::path root_;
};

// A laptop: 4 cores with 2 threads, no NUMA folder, one network card.
void make_laptop(FakeMachine const& machine);
// Two sockets of 8 cores with 2 threads, a network card on each.
void make_two_sockets(FakeMachine const& machine);
// Two sockets of 16 cores, 8 GPUs, each behind a PCI switch with an InfiniBand card, and a storage card per socket.
void make_dgx(FakeMachine const& machine);

}  // namespace rapidsmpf::test

// The NUMA nodes that a process takes its memory from, by raw system calls: libnuma is not needed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace rapidsmpf::topology {

// A set of NUMA nodes in the form that the kernel takes; no heap, so that it can be used between fork and exec.
class NodeMask {
  public:
    static constexpr std::size_t most_nodes = 1024;

    NodeMask() = default;
    // Nodes outside of [0, most_nodes) are left out.
    explicit NodeMask(std::span<int const> nodes) noexcept;
    [[nodiscard]] bool empty() const noexcept;
    [[nodiscard]] std::vector<int> nodes() const;
    [[nodiscard]] unsigned long* words() noexcept { return words_.data(); }

  private:
    static constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
    std::array<unsigned long, most_nodes / word_bits> words_{};
};

enum class MemoryPolicy : int {
    none = 0,
    preferred = 1,
    bound = 2,
    interleaved = 3,
    local = 4,
    preferred_many = 5
};

// Memory of this process comes from these nodes while they have any, and then from others: a rank that needs more
// than its share gets slower, not killed. Inherited over fork and exec. With a kernel that can prefer one node only
// (before 5.15) several nodes are left alone. Returns 0 or an error number; safe between fork and exec.
[[nodiscard]] int prefer_memory_of(NodeMask mask) noexcept;

struct CurrentMemoryPolicy {
    MemoryPolicy policy{MemoryPolicy::none};
    std::vector<int> nodes;
};
// What the kernel says of this thread; none where it does not tell (as in some containers).
[[nodiscard]] CurrentMemoryPolicy current_memory_policy();

}  // namespace rapidsmpf::topology

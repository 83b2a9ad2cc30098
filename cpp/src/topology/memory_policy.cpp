#include <rapidsmpf/topology/detail/memory_policy.hpp>

#include <algorithm>
#include <cerrno>

#include <sys/syscall.h>
#include <unistd.h>

namespace rapidsmpf::topology {

namespace {

int set_policy(MemoryPolicy policy, NodeMask& mask) noexcept {
    // The kernel reads one bit less than it is told.
    auto const done =
        ::syscall(SYS_set_mempolicy, static_cast<int>(policy), mask.words(), NodeMask::most_nodes + 1);
    return done == 0 ? 0 : errno;
}

}  // namespace

NodeMask::NodeMask(std::span<int const> nodes) noexcept {
    for (int const node : nodes) {
        if (node >= 0 && static_cast<std::size_t>(node) < most_nodes) {
            auto const bit = static_cast<std::size_t>(node);
            words_.at(bit / word_bits) |= 1UL << (bit % word_bits);
        }
    }
}

bool NodeMask::empty() const noexcept {
    return std::all_of(words_.begin(), words_.end(), [](unsigned long word) { return word == 0; });
}

std::vector<int> NodeMask::nodes() const {
    std::vector<int> found;
    for (std::size_t bit = 0; bit < most_nodes; ++bit) {
        if ((words_.at(bit / word_bits) >> (bit % word_bits) & 1UL) != 0) {
            found.push_back(static_cast<int>(bit));
        }
    }
    return found;
}

int prefer_memory_of(NodeMask mask) noexcept {
    if (mask.empty()) {
        return 0;
    }
    int const error = set_policy(MemoryPolicy::preferred_many, mask);
    // Of several nodes, the older policy takes the first and would favour it over the rank's others.
    unsigned bits = 0;
    for (std::size_t i = 0; i < NodeMask::most_nodes / (8 * sizeof(unsigned long)); ++i) {
        bits += static_cast<unsigned>(__builtin_popcountl(mask.words()[i]));
    }
    return error == EINVAL && bits == 1 ? set_policy(MemoryPolicy::preferred, mask) : error;
}

CurrentMemoryPolicy current_memory_policy() {
    NodeMask mask;
    int policy = 0;
    if (::syscall(SYS_get_mempolicy, &policy, mask.words(), NodeMask::most_nodes + 1, nullptr, 0UL) != 0) {
        return {};
    }
    constexpr int flags = 0xe000;  // MPOL_F_*, in the upper bits
    policy &= ~flags;
    CurrentMemoryPolicy current;
    current.policy = policy <= static_cast<int>(MemoryPolicy::preferred_many)
                         ? static_cast<MemoryPolicy>(policy)
                         : MemoryPolicy::none;
    current.nodes = mask.nodes();
    return current;
}

}  // namespace rapidsmpf::topology

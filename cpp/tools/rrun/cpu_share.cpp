#include "cpu_share.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <tuple>

#include <sched.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

namespace {

struct FreeCpuSet {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

// More than any kernel is built for.
constexpr int most_cpus = 1 << 16;

int read_topology(int cpu, char const* name) {
    std::ifstream file{"/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name};
    int value = 0;
    return file >> value ? value : 0;
}

}  // namespace

std::vector<int> usable_cpus() {
    // The kernel refuses a set smaller than its own: grow until it takes it.
    for (int count = 1024; count <= most_cpus; count *= 2) {
        CpuSet const set{CPU_ALLOC(static_cast<unsigned>(count))};
        auto const size = CPU_ALLOC_SIZE(static_cast<unsigned>(count));
        CPU_ZERO_S(size, set.get());
        if (::sched_getaffinity(0, size, set.get()) != 0) {
            if (errno == EINVAL) {
                continue;
            }
            break;
        }
        std::vector<std::tuple<int, int, int>> found;
        for (int cpu = 0; cpu < count; ++cpu) {
            if (CPU_ISSET_S(static_cast<unsigned>(cpu), size, set.get())) {
                found.emplace_back(
                    read_topology(cpu, "physical_package_id"), read_topology(cpu, "core_id"), cpu);
            }
        }
        std::sort(found.begin(), found.end());
        std::vector<int> cpus;
        cpus.reserve(found.size());
        for (auto const& entry : found) {
            cpus.push_back(std::get<2>(entry));
        }
        return cpus;
    }
    throw SystemError{"cannot ask which CPUs may be used", errno};
}

std::vector<int> cpu_share(std::span<int const> cpus, int rank, int nranks) {
    auto const count = cpus.size();
    auto const r = static_cast<std::size_t>(rank);
    auto const n = static_cast<std::size_t>(nranks);
    if (count == 0) {
        return {};
    }
    if (n > count) {
        return {cpus[r % count]};
    }
    auto const first = r * count / n;
    auto const last = (r + 1) * count / n;
    return std::vector<int>(
        cpus.begin() + static_cast<std::ptrdiff_t>(first), cpus.begin() + static_cast<std::ptrdiff_t>(last));
}

int bind_to_cpus(std::span<int const> cpus) noexcept {
    if (cpus.empty()) {
        return 0;
    }
    auto const count = static_cast<unsigned>(*std::max_element(cpus.begin(), cpus.end()) + 1);
    CpuSet const set{CPU_ALLOC(count)};
    if (!set) {
        return ENOMEM;
    }
    auto const size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set.get());
    for (auto const cpu : cpus) {
        CPU_SET_S(static_cast<unsigned>(cpu), size, set.get());
    }
    return ::sched_setaffinity(0, size, set.get()) == 0 ? 0 : errno;
}

std::string format_cpus(std::vector<int> cpus) {
    std::sort(cpus.begin(), cpus.end());
    std::string text;
    for (std::size_t i = 0; i < cpus.size();) {
        auto last = i;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
        if (last > i) {
            text += "-" + std::to_string(cpus[last]);
        }
        i = last + 1;
    }
    return text;
}

}  // namespace rapidsmpf::rrun

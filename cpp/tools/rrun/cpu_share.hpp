// Which CPUs each rank may use: contiguous, equal shares of those that rrun itself may use.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace rapidsmpf::rrun {

// The CPUs that this process may use, neighbours first: by socket, then core, so that the hardware threads of one
// core stand together.
[[nodiscard]] std::vector<int> usable_cpus();

// Rank `rank`'s part of `cpus`. With more ranks than CPUs each gets one, in turn.
[[nodiscard]] std::vector<int> cpu_share(std::span<int const> cpus, int rank, int nranks);

// Restricts the calling process. Returns 0 or an error number. Safe to call between fork and exec.
[[nodiscard]] int bind_to_cpus(std::span<int const> cpus) noexcept;

// {0, 1, 2, 5} -> "0-2,5".
[[nodiscard]] std::string format_cpus(std::vector<int> cpus);

}  // namespace rapidsmpf::rrun

// Sets of CPUs, as the kernel numbers them: their text, and what this process may use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rapidsmpf::topology {

// {0, 1, 2, 5} -> "0-2,5". Also for NUMA nodes.
[[nodiscard]] std::string format_list(std::vector<int> numbers);
// "0-2,5" -> {0, 1, 2, 5}, ascending; what is not understood, as in a file of another kernel, is left out.
[[nodiscard]] std::vector<int> parse_list(std::string_view text);

// The CPUs that this process may use, ascending. Throws SystemError.
[[nodiscard]] std::vector<int> usable_cpus();

// Restricts the calling thread. Returns 0 or an error number. Safe to call between fork and exec.
[[nodiscard]] int bind_to_cpus(std::span<int const> cpus) noexcept;

// Restricts all threads that this process has now, and those that they will start. Returns 0 or an error number.
[[nodiscard]] int bind_process_to_cpus(std::span<int const> cpus);

}  // namespace rapidsmpf::topology

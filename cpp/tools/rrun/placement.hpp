// Where the ranks of this host go: their GPUs, and what they are bound to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rapidsmpf/topology/binding.hpp>

#include "options.hpp"

namespace rapidsmpf::rrun {

// The ranks that this rrun starts, among all that the job has on this host (a batch system may start several rruns).
struct LocalSeats {
    std::int32_t first{0};
    std::int32_t count{0};
    std::int32_t on_host{0};
};

struct Seat {
    topology::Binding binding;
    std::string gpu;  // for CUDA_VISIBLE_DEVICES; empty: leave it as it is
};

// One per rank that this rrun starts. Throws UsageError when -g names a GPU that is not visible.
[[nodiscard]] std::vector<Seat> place_ranks(CommandLine const& command_line, LocalSeats const& seats);

// The GPUs to use, as CUDA_VISIBLE_DEVICES names them: `chosen` (-g), whose numbers count within `visible`, or all of
// `visible`, or, where there is no such variable (null), all `existing` ones. Throws UsageError.
[[nodiscard]] std::vector<std::string> choose_gpus(
    std::vector<std::string> const& chosen, char const* visible, std::size_t existing);

}  // namespace rapidsmpf::rrun

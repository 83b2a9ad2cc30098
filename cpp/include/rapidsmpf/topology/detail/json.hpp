// What topology_discovery prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/topology/topology.hpp>

namespace rapidsmpf::topology {

// The document of topology_discovery. `usable`: the CPUs that may be used.
[[nodiscard]] std::string to_json(
    Topology const& topology, std::string_view host, std::vector<int> const& usable);

}  // namespace rapidsmpf::topology

// Steps: filter, project, probe.
#pragma once

#include <memory>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/expression.hpp"
#include "compute/join_table.hpp"
#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// `expressions` outlive the steps.
[[nodiscard]] std::unique_ptr<ChunkStep> make_filter_step(Filter const& plan, Expressions const& expressions);
[[nodiscard]] std::unique_ptr<ChunkStep> make_project_step(
    Project const& plan, Expressions const& expressions);
[[nodiscard]] std::unique_ptr<ChunkStep> make_probe_step(
    Probe const& plan, std::shared_ptr<JoinTable const> table);

}  // namespace rapidsmpf::compute

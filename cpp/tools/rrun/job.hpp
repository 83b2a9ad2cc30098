// A job: the ranks' processes, their coordinator, their output, and how they end.
//
// On one host, one rrun does all of it (local_job). On several, one rrun is the head (head_job): it has the coordinator
// and starts, or waits for, one rrun per host (node_job), which starts the ranks there. All of them are one thread each,
// driven by poll(), and everything that they start has ended when these functions return or throw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rapidsmpf/bootstrap/detail/pmix.hpp>
#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/core/detail/token.hpp>

#include "options.hpp"
#include "placement.hpp"

namespace rapidsmpf::rrun {

// Runs the job to its end and returns rrun's exit code. Throws ExecError when the program cannot be executed, UsageError
// when the machine is not as the command line says.
[[nodiscard]] int run_job(CommandLine const& command_line);

// One rrun per host: which of them this one is, and how they find each other.
struct NodePlan {
    std::int32_t node_rank{0};
    std::int32_t nnodes{1};
    LocalSeats seats;
    std::string host;       // of the coordinator; empty: left to node 0
    std::uint16_t port{0};  // 0: left to the kernel
    std::optional<Token> token;
    bootstrap::PmixSession* pmix{nullptr};  // carries the address and the token; null: nothing does
};

// The roles; for run_job().
[[nodiscard]] int run_local_job(CommandLine const& command_line);
// With --hosts, or as node 0 of a plan.
[[nodiscard]] int run_head_over_hosts(CommandLine const& command_line);
[[nodiscard]] int run_head_of_plan(CommandLine const& command_line, NodePlan const& plan);
[[nodiscard]] int run_node_of_plan(CommandLine const& command_line, NodePlan const& plan);
// The launch specification are on the standard input.
[[nodiscard]] int run_node_by_spec();

// What carries an address and a token as one text.
inline constexpr char const* rendezvous_key = "rapidsmpf.coordinator";

}  // namespace rapidsmpf::rrun

// Runs a test body on every rank of a loopback cluster, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/streaming/context.hpp>

namespace rapidsmpf::streaming::testing {

// Calls body(context) for each rank at the same time and returns when all have ended. Returns what each one
// threw ("" for nothing), by rank. A rank that throws fails its communicator, as an engine does.
[[nodiscard]] std::vector<std::string> run_ranks(
    LoopbackCluster& cluster, std::function<void(Context const&)> const& body);

// The same on a new cluster whose messages are delayed by `seed`; every rank must end without an error.
void run_all(Rank nranks, std::uint64_t seed, std::function<void(Context const&)> const& body);

}  // namespace rapidsmpf::streaming::testing

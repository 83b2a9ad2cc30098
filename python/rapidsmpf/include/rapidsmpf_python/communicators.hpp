// Making communicators for Python, and what it needs of particular backends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/interrupt.hpp>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/communicator/single.hpp>
#include <rapidsmpf/communicator/split.hpp>

namespace rapidsmpf::python {

[[nodiscard]] inline std::shared_ptr<Communicator> make_single(
    config::Options options, std::shared_ptr<ProgressThread> progress_thread) {
    return std::make_shared<SingleCommunicator>(std::move(options), std::move(progress_thread));
}

// dying_rank < 0: none dies.
[[nodiscard]] inline std::vector<std::shared_ptr<Communicator>> make_loopback(
    Rank nranks, std::uint64_t seed, double delay_probability, std::uint32_t longest_delay, Rank dying_rank,
    std::uint64_t dies_after, config::Options options) {
    LoopbackFaults faults;
    faults.seed = seed;
    faults.delay_probability = delay_probability;
    faults.longest_delay = longest_delay;
    if (dying_rank >= 0) {
        faults.dying_rank = dying_rank;
        faults.dies_after = dies_after;
    }
    return LoopbackCluster{nranks, faults, std::move(options)}.communicators();
}

// color < 0: none. seconds < 0: no limit. The caller does not hold the GIL.
[[nodiscard]] inline std::shared_ptr<Communicator> split_interruptibly(
    std::shared_ptr<Communicator> const& parent, std::int32_t color, std::int32_t key, double seconds) {
    return run_until_stopped(
        [&](std::stop_token const& stop) { return split(parent, color, key, to_timeout(seconds), stop); });
}

}  // namespace rapidsmpf::python

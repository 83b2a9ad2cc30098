// Looking at networks of actors while they run.
//
//     std::cerr << describe_networks(*context.executor());
//
// says of each actor whether it waits, for what, and of each channel what is in it and went through it. On any thread, at any
// time: it stops no actor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <rapidsmpf/streaming/executor.hpp>

namespace rapidsmpf::streaming {

enum class NetworkFormat : std::uint8_t {
    text,
    dot,  // for Graphviz
};

// A network that runs. For this repository; users have describe_networks().
class RunningNetwork {
  public:
    RunningNetwork() = default;
    RunningNetwork(RunningNetwork const&) = delete;
    RunningNetwork& operator=(RunningNetwork const&) = delete;
    virtual ~RunningNetwork() = default;
    // `number` names it among others.
    [[nodiscard]] virtual std::string describe(NetworkFormat format, std::size_t number) const = 0;
    // No coroutine of the executor is ready, and nothing that it knows of will make one ready.
    virtual void on_standstill() = 0;
};

// The networks that run on this executor now; the empty string if there are none.
[[nodiscard]] std::string describe_networks(
    Executor const& executor, NetworkFormat format = NetworkFormat::text);

}  // namespace rapidsmpf::streaming

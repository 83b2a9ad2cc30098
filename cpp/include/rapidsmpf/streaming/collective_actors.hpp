// The output of collectives as actors: rows are sent to a channel as they become available.
#pragma once

#include <memory>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/collective_output.hpp>
#include <rapidsmpf/streaming/context.hpp>

namespace rapidsmpf::streaming {

// Sends this rank's rows as messages of Table, numbered 0, 1, ..., each partition as soon as it is complete.
[[nodiscard]] Actor shuffle_output(
    Context const& context, std::shared_ptr<ShuffleOutput> output, ChannelPtr out);

// Sends the rows of all ranks in order as messages of Table, numbered 0, 1, ...
[[nodiscard]] Actor allgather_output(
    Context const& context, std::shared_ptr<AllGatherOutput> output, ChannelPtr out);

}  // namespace rapidsmpf::streaming

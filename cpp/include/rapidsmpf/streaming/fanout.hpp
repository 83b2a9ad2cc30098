// One stream of messages for several consumers.
//
// Each gets every message, in order: the last the message itself, the others copies, deep ones within a reservation where
// the payload owns memory (Message::copy). A consumer that shuts its channel gets no more, and the others go on.
#pragma once

#include <cstdint>
#include <vector>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>

namespace rapidsmpf::streaming {

enum class FanoutPolicy : std::uint8_t {
    bounded,  // the slowest consumer sets the pace of all: for consumers that read side by side
    unbounded,  // what a consumer has not received yet waits for it, and may be spilled: for those that read in any order
};

// The actor that does it. Metadata of `in` goes to all, too. Throws std::invalid_argument when there are no outputs.
[[nodiscard]] Actor fanout(
    Context const& context, ChannelPtr in, std::vector<ChannelPtr> outs,
    FanoutPolicy policy = FanoutPolicy::bounded);

}  // namespace rapidsmpf::streaming

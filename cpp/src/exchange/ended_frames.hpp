// Which of the frames that are on their way to a peer have ended.
#pragma once

#include "exchange/transport.hpp"

namespace rapidsmpf::exchange::detail {

// Calls ended(frame) for each that is done, and takes it out. Those that the peer is told of end in their order, which is that
// of its grants, however they were done: a notice says how many, and the peer takes the first to be meant. (A GPU writes
// several at a time, on streams of their own.) Returns whether there was one.
template <typename Frames, typename Ended>
bool take_ended(Frames& frames, Ended const& ended) {
    bool any = false;
    bool is_behind_another = false;
    for (auto frame = frames.begin(); frame != frames.end();) {
        bool const is_told = frame->send_transfer->needs_notice();
        if ((is_told && is_behind_another) || !frame->send_transfer->poll()) {
            is_behind_another = is_behind_another || is_told;
            ++frame;
            continue;
        }
        ended(*frame);
        frame = frames.erase(frame);
        any = true;
    }
    return any;
}

}  // namespace rapidsmpf::exchange::detail

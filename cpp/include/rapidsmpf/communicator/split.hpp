// Communicators of some of the ranks of another, as MPI_Comm_split makes them.
//
// The new communicator is a view: it renumbers ranks and sends over the parent's transport, in a context of its own
// (see Tag), so that its messages meet none of the parent's or of its siblings'. It shares the parent's progress
// thread and keeps the parent alive. When the parent fails, it fails: a member by its rank in the new communicator,
// anyone else as rank -1, named in the reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf {

// Collective: every rank of `parent` has to call it, in the same order among its calls on that parent. Ranks with
// the same colour get a communicator together, numbered by key, then by rank in the parent. Without a colour, or
// with a negative one, the rank takes part but gets null.
//
// Throws RankFailedError; TimeoutError naming the ranks that did not come within `timeout` (none: no limit), after
// which the parent cannot be split again, and the same once `stop` is requested; std::runtime_error when there are too
// many communicators (thousands live).
[[nodiscard]] std::shared_ptr<Communicator> split(
    std::shared_ptr<Communicator> const& parent, std::optional<std::int32_t> color, std::int32_t key = 0,
    std::optional<std::chrono::milliseconds> timeout = std::nullopt, std::stop_token const& stop = {});

}  // namespace rapidsmpf

// Gives up the collectives of one query on all ranks, and leaves the communicator to the next.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf::coll {

// Ends every collective whose id is in [first, last] on every rank: pending and later calls of those that are not
// complete raise RankFailedError with `reason`, and none of these ids can be used from then on. One rank that calls
// this is enough; that others do so as well, at the same time, is harmless. Returns at once.
//
// origin: who is to blame; this rank by default. Throws std::invalid_argument for a range or rank that cannot be,
// RankFailedError if the communicator has failed.
void abandon_operations(
    Communicator& comm, OpId first, OpId last, std::string reason, std::optional<Rank> origin = {});

// The ids from `first` to `last` may be used again, also where they were abandoned once. For who numbers operations, round
// and round: half a round before, on every rank.
void forget_abandoned(Communicator& comm, OpId first, OpId last);

}  // namespace rapidsmpf::coll

#include "exchange/local_partitions.hpp"

#include <algorithm>
#include <cstdint>

namespace rapidsmpf::exchange {

std::optional<LocalPartitions::Index> LocalPartitions::find(PartitionId partition) const {
    if (ids_.empty() || partition < ids_.front() || partition > ids_.back()) {
        return std::nullopt;
    }
    // Partitions are dealt out in turn or in blocks, so mostly they are evenly spaced.
    auto const span = std::uint64_t{ids_.back()} - ids_.front();
    auto const guess = span == 0 ? 0 : std::uint64_t{partition - ids_.front()} * (ids_.size() - 1) / span;
    if (ids_[guess] == partition) {
        return guess;
    }
    auto const found = std::lower_bound(ids_.begin(), ids_.end(), partition);
    if (found == ids_.end() || *found != partition) {
        return std::nullopt;
    }
    return static_cast<Index>(found - ids_.begin());
}

}  // namespace rapidsmpf::exchange

// The partitions of this rank, ascending. Constant.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class LocalPartitions {
  public:
    // The place of a partition in the list.
    using Index = std::size_t;

    explicit LocalPartitions(std::vector<PartitionId> ids) : ids_{std::move(ids)} {}

    [[nodiscard]] std::vector<PartitionId> const& ids() const noexcept { return ids_; }
    [[nodiscard]] std::optional<Index> find(PartitionId partition) const;

  private:
    std::vector<PartitionId> ids_;
};

}  // namespace rapidsmpf::exchange

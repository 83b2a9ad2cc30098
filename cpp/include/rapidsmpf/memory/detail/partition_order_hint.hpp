// In which order the parts of a partitioned table should lie in memory, by the number of parts.
//
// Parts for one rank are sent as one piece if they are adjacent in memory. But partition_and_pack does not know the ranks, and
// the Shuffler does not know the table. Both know the number of parts and the BufferResource that allocates them. So the Shuffler
// registers its preferred order with that resource, and partition_and_pack looks it up by the number of parts if its caller
// names no order (the published interface has no argument for one). It is a hint: it changes where parts lie, not what they
// hold. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf {

class PartitionOrderHint {
  public:
    // The numbers of the parts, each once.
    using Order = std::vector<std::uint32_t>;

    // Holds for as many parts as it names while what is returned lives, and until another for as many is advised.
    [[nodiscard]] std::shared_ptr<Order const> advise(Order order);
    // For so many parts; null: as numbered.
    [[nodiscard]] std::shared_ptr<Order const> find(std::size_t parts) const;

  private:
    mutable Mutex mutex_;
    std::map<std::size_t, std::weak_ptr<Order const>> orders_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf

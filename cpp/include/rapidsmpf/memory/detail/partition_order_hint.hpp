// In which order the parts of a table that is cut into n of them are to lie in memory, where who cuts it does not say.
//
// What goes to one rank moves as one piece if it lies side by side. Who cuts a table knows nothing of ranks, and a shuffle
// knows nothing of tables; what both know is the memory that the parts are in and how many they are. So a shuffle leaves
// word here. The order is advice: it changes where parts lie, not what they hold. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

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
    mutable std::mutex mutex_;
    std::map<std::size_t, std::weak_ptr<Order const>> orders_;
};

}  // namespace rapidsmpf

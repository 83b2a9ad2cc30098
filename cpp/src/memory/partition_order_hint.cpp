#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

#include <utility>

namespace rapidsmpf {

std::shared_ptr<PartitionOrderHint::Order const> PartitionOrderHint::advise(Order order) {
    auto advised = std::make_shared<Order const>(std::move(order));
    MutexLock const lock{mutex_};
    std::erase_if(orders_, [](auto const& entry) { return entry.second.expired(); });
    orders_[advised->size()] = advised;
    return advised;
}

std::shared_ptr<PartitionOrderHint::Order const> PartitionOrderHint::find(std::size_t parts) const {
    MutexLock const lock{mutex_};
    auto const found = orders_.find(parts);
    return found == orders_.end() ? nullptr : found->second.lock();
}

}  // namespace rapidsmpf

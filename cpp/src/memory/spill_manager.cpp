#include <rapidsmpf/memory/spill_manager.hpp>

#include <utility>

namespace rapidsmpf {

SpillManager::SpillFunctionId SpillManager::add_spill_function(SpillFunction function, int priority) {
    std::lock_guard lock{mutex_};
    auto const id = next_id_++;
    functions_.emplace(priority, Entry{id, std::move(function)});
    return id;
}

void SpillManager::remove_spill_function(SpillFunctionId id) {
    std::lock_guard lock{mutex_};
    for (auto entry = functions_.begin(); entry != functions_.end(); ++entry) {
        if (entry->second.id == id) {
            functions_.erase(entry);
            return;
        }
    }
}

std::size_t SpillManager::spill(std::size_t amount) {
    std::lock_guard lock{mutex_};
    std::size_t freed = 0;
    for (auto const& [priority, entry] : functions_) {
        if (freed >= amount) {
            break;
        }
        freed += entry.function(amount - freed);
    }
    return freed;
}

}  // namespace rapidsmpf

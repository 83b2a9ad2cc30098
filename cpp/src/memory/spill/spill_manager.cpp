#include <rapidsmpf/memory/spill_manager.hpp>

#include <utility>

namespace rapidsmpf {

SpillManager::SpillFunctionId SpillManager::add_spill_function(SpillFunction function, int priority) {
    SpillFunctionId id{};
    {
        MutexLock lock{mutex_};
        id = next_id_++;
        functions_.emplace(priority, Entry{id, std::move(function)});
        ++count_;
    }
    if (added_) {
        added_();
    }
    return id;
}

void SpillManager::remove_spill_function(SpillFunctionId id) {
    MutexLock lock{mutex_};
    for (auto entry = functions_.begin(); entry != functions_.end(); ++entry) {
        if (entry->second.id == id) {
            functions_.erase(entry);
            --count_;
            return;
        }
    }
}

std::size_t SpillManager::call(Turn turn, std::size_t amount) {
    if (empty()) {
        return 0;
    }
    MutexLock lock{mutex_};
    std::size_t freed = 0;
    for (auto const& [priority, entry] : functions_) {
        if (freed >= amount) {
            break;
        }
        if ((priority > 0) == (turn == Turn::before_buffers)) {
            freed += entry.function(amount - freed);
        }
    }
    return freed;
}

std::size_t SpillManager::spill(std::size_t amount) {
    auto freed = call(Turn::before_buffers, amount);
    if (freed < amount && buffers_) {
        freed += buffers_(amount - freed);
    }
    return freed < amount ? freed + call(Turn::after_buffers, amount - freed) : freed;
}

}  // namespace rapidsmpf

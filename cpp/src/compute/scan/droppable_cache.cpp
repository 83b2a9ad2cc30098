#include "compute/scan/droppable_cache.hpp"

#include <algorithm>
#include <utility>

namespace rapidsmpf::compute {

void DroppableCache::begin_use() {
    constexpr std::size_t uses_to_recover = 256;
    MutexLock const lock{mutex_};
    ++uses_;
    limit_ = std::min(most_, limit_ + most_ / uses_to_recover);
}

DroppableCache::Value DroppableCache::find(std::string const& key) {
    MutexLock const lock{mutex_};
    auto const found = entries_.find(key);
    if (found == entries_.end()) {
        return nullptr;
    }
    found->second.last_use = uses_;
    return found->second.value;
}

bool DroppableCache::has(std::string const& key) const {
    MutexLock const lock{mutex_};
    return entries_.contains(key);
}

std::vector<DroppableCache::Value> DroppableCache::take_out(
    std::size_t bytes, std::function<bool(Entry const&)> const& may_go) {
    std::vector<std::pair<std::uint64_t, std::string const*>> oldest_first;
    for (auto const& [key, entry] : entries_) {
        // A reader that asks for it meanwhile waits for the lock, and then does not find it.
        if (entry.value.use_count() == 1 && may_go(entry)) {
            oldest_first.emplace_back(entry.last_use, &key);
        }
    }
    std::ranges::sort(oldest_first);
    std::vector<Value> taken;
    std::size_t sum = 0;
    for (auto const& [use, key] : oldest_first) {
        if (sum >= bytes) {
            break;
        }
        auto node = entries_.extract(*key);
        sum += node.mapped().bytes;
        taken.push_back(std::move(node.mapped().value));
    }
    bytes_ -= sum;
    return taken;
}

bool DroppableCache::has_room(std::size_t bytes) {
    std::vector<Value> dropped;
    MutexLock const lock{mutex_};
    if (bytes_ + bytes > limit_ && bytes <= limit_) {
        dropped = take_out(bytes_ + bytes - limit_, [this](Entry const& entry) RAPIDSMPF_REQUIRES(mutex_) {
            return entry.last_use + patience_ <= uses_;
        });
    }
    return bytes_ + bytes <= limit_;
}

bool DroppableCache::add(std::string const& key, Value value, std::size_t bytes) {
    if (!has_room(bytes)) {
        return false;
    }
    MutexLock const lock{mutex_};
    auto const [entry, is_new] = entries_.try_emplace(key, Entry{value, bytes, uses_});
    if (is_new) {
        bytes_ += bytes;
    }
    return true;
}

void DroppableCache::remove(std::string const& key) {
    std::unordered_map<std::string, Entry>::node_type dropped;
    MutexLock const lock{mutex_};
    dropped = entries_.extract(key);
    if (dropped) {
        bytes_ -= dropped.mapped().bytes;
    }
}

std::size_t DroppableCache::drop(std::size_t bytes) {
    std::vector<Value> dropped;
    MutexLock const lock{mutex_};
    auto const before = bytes_;
    dropped = take_out(bytes, [](Entry const&) { return true; });
    limit_ = std::min(limit_, bytes_);
    return before - bytes_;
}

std::size_t DroppableCache::bytes() const {
    MutexLock const lock{mutex_};
    return bytes_;
}

}  // namespace rapidsmpf::compute

// Blocks that others may still write to: kept until that is over.
//
// Thread-safe. A block is let go of outside the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::device::detail {

template <typename Block>
class Quarantine {
  public:
    // Lets the block go at once if `is_safe` says so.
    void put(std::shared_ptr<Block> block, std::function<bool()> is_safe) {
        if (is_safe()) {
            return;
        }
        MutexLock const lock{mutex_};
        blocks_.emplace_back(std::move(block), std::move(is_safe));
        any_ = true;
    }

    // Releases the blocks that no process writes to any more.
    void settle() {
        if (!any_) {
            return;
        }
        std::vector<Suspect> safe;  // destroyed without the lock
        MutexLock const lock{mutex_};
        auto const first_safe = std::partition(
            blocks_.begin(), blocks_.end(), [](Suspect const& suspect) { return !suspect.second(); });
        std::move(first_safe, blocks_.end(), std::back_inserter(safe));
        blocks_.erase(first_safe, blocks_.end());
        any_ = !blocks_.empty();
    }

    // Their bytes, after a look at which of them may go.
    [[nodiscard]] std::size_t bytes() {
        settle();
        MutexLock const lock{mutex_};
        std::size_t bytes = 0;
        for (auto const& suspect : blocks_) {
            bytes += suspect.first->size();
        }
        return bytes;
    }

  private:
    using Suspect = std::pair<std::shared_ptr<Block>, std::function<bool()>>;
    std::atomic<bool> any_{false};  // spares the lock
    Mutex mutex_;
    std::vector<Suspect> blocks_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::device::detail

// Whom to ask when a tier is full: a list of functions that free device memory by moving their buffers to a
// lower tier, called by descending priority until enough is freed. The SpillableBuffers of the resource have
// their turn between the functions of positive priority and the others.
//
// A spill function must not wait for memory and must not call back into the manager. It may be called from
// any thread, never concurrently with itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf {

class SpillManager {
  public:
    // Tries to free `amount` bytes; returns how many it freed.
    using SpillFunction = std::function<std::size_t(std::size_t amount)>;
    using SpillFunctionId = std::uint64_t;

    SpillFunctionId add_spill_function(SpillFunction function, int priority);
    // Waits for a running call to end. A no-op if there is no such function.
    void remove_spill_function(SpillFunctionId id);
    // Frees at least `amount` bytes if the functions can; returns how many.
    std::size_t spill(std::size_t amount);
    // Whether there are no functions.
    [[nodiscard]] bool empty() const noexcept { return count_.load() == 0; }

    // For the resource, before the manager is used: `buffers` spills its buffers, on several threads at once, and
    // `added` is called after a function was added.
    void attach(SpillFunction buffers, std::function<void()> added) {
        buffers_ = std::move(buffers);
        added_ = std::move(added);
    }

  private:
    struct Entry {
        SpillFunctionId id;
        SpillFunction function;
    };
    enum class Turn : bool { before_buffers, after_buffers };
    std::size_t call(Turn turn, std::size_t amount);

    SpillFunction buffers_;
    std::function<void()> added_;
    Mutex mutex_;
    std::multimap<int, Entry, std::greater<>> functions_ RAPIDSMPF_GUARDED_BY(mutex_);
    SpillFunctionId next_id_ RAPIDSMPF_GUARDED_BY(mutex_){1};
    std::atomic<std::size_t> count_{0};
};

}  // namespace rapidsmpf

// A cache whose values may be evicted at any time; an evicted value has to be made anew.
//
// Independent of what they are, so that it is tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::compute {

// Thread-safe. Destroys what it drops in the thread that calls, without holding its lock.
class DroppableCache {
  public:
    // Lives as long as the cache or a reader holds it.
    using Value = std::shared_ptr<void const>;

    // limit: bytes at most. patience: a value that was not used by so many uses makes room for new ones. Until then, what
    // would exceed the limit is not kept: if the least recently used were dropped, readers that go over more than the limit
    // again and again would never find anything.
    DroppableCache(std::size_t limit, std::uint64_t patience)
        : most_{limit}, patience_{patience}, limit_{limit} {}

    // Starts a new use: values that are found or added from now on count as used by it.
    void begin_use();

    [[nodiscard]] Value find(std::string const& key);
    [[nodiscard]] bool has(std::string const& key) const;

    // Whether a value of so many bytes would be kept: makes room for it, if it can.
    [[nodiscard]] bool has_room(std::size_t bytes);
    // Inserts a value if there is room for it. Returns whether the cache has a value of this key afterwards.
    bool add(std::string const& key, Value value, std::size_t bytes);
    void remove(std::string const& key);

    // Drops values until so many bytes are free, the least recently used first and none that a reader holds; returns how many
    // bytes it has dropped. Who needs them will need them again: the limit falls to what is left, and rises slowly from there
    // with each use.
    std::size_t drop(std::size_t bytes);

    [[nodiscard]] std::size_t bytes() const;

  private:
    struct Entry {
        Value value;
        std::size_t bytes{0};
        std::uint64_t last_use{0};
    };

    // Takes out values, the least recently used first, until so many bytes are taken.
    std::vector<Value> take_out(std::size_t bytes, std::function<bool(Entry const&)> const& may_go)
        RAPIDSMPF_REQUIRES(mutex_);

    std::size_t const most_;
    std::uint64_t const patience_;
    mutable Mutex mutex_;
    std::size_t limit_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::unordered_map<std::string, Entry> entries_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t bytes_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t uses_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace rapidsmpf::compute

#include "compute/device_memory.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::compute {

namespace {

thread_local ChunkMemory* own_chunk{nullptr};

}  // namespace

DeviceMemory::DeviceMemory(std::shared_ptr<MemoryResource> upstream, std::int64_t limit)
    : upstream_{std::move(upstream)}, limit_{limit} {}

bool DeviceMemory::take(std::size_t bytes) noexcept {
    auto const size = static_cast<std::int64_t>(bytes);
    auto const now = in_use_.fetch_add(size, std::memory_order_relaxed) + size;
    if (now > limit_) {
        in_use_.fetch_sub(size, std::memory_order_relaxed);
        return false;
    }
    if (own_chunk != nullptr) {
        own_chunk->add(size);
    }
    auto peak = peak_.load(std::memory_order_relaxed);
    while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return true;
}

std::size_t DeviceMemory::make_room(std::size_t bytes) {
    MutexLock const lock{mutex_};
    std::size_t freed{0};
    for (auto const& [id, holder] : holders_) {
        if (freed >= bytes) {
            break;
        }
        freed += holder(bytes - freed);
    }
    return freed;
}

void DeviceMemory::give_back(std::size_t bytes) noexcept {
    auto const size = static_cast<std::int64_t>(bytes);
    in_use_.fetch_sub(size, std::memory_order_relaxed);
    if (own_chunk != nullptr) {
        own_chunk->add(-size);
    }
    if (waiting_.load() > 0) {
        {
            MutexLock const lock{chunks_mutex_};
            ++frees_;
        }
        freed_.notify_all();
    }
}

bool DeviceMemory::wait_for_others() {
    UniqueLock lock{chunks_mutex_};
    auto const others = chunks_.size() - (own_chunk != nullptr ? 1 : 0);
    // Who has been waiting for seconds waits for others that wait, too.
    if (others == 0) {
        return false;
    }
    auto const before = frees_;
    ++waiting_;
    auto const freed = freed_.wait_for(
        lock, std::chrono::seconds{5}, [&]() RAPIDSMPF_REQUIRES(chunks_mutex_) { return frees_ != before; });
    --waiting_;
    return freed;
}

void* DeviceMemory::allocate(std::size_t bytes, Stream stream) {
    for (;;) {
        std::string reason;
        if (take(bytes)) {
            try {
                return upstream_->allocate(bytes + spare_bytes, stream);
            } catch (OutOfMemory const& error) {
                give_back(bytes);
                reason = error.what();
            } catch (...) {
                give_back(bytes);
                throw;
            }
        } else {
            reason = config::format_bytes(static_cast<std::size_t>(in_use())) + " of "
                     + config::format_bytes(static_cast<std::size_t>(limit_)) + " are in use";
        }
        // Others may take what was freed for this thread: it asks again as long as something is freed.
        if (make_room(bytes) == 0 && !wait_for_others()) {
            throw OutOfMemory{"cannot allocate " + config::format_bytes(bytes) + " on the device: " + reason};
        }
    }
}

void DeviceMemory::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    upstream_->deallocate(pointer, bytes + spare_bytes, stream);
    give_back(bytes);
}

std::int64_t DeviceMemory::shortage(ChunkMemory const& chunk) const noexcept {
    auto needed = in_use() + chunk.expected_;
    for (auto const* const other : chunks_) {
        needed += std::max<std::int64_t>(other->expected_ - other->bytes_.load(std::memory_order_relaxed), 0);
    }
    return needed - limit_;
}

void DeviceMemory::begin(ChunkMemory& chunk) {
    UniqueLock lock{chunks_mutex_};
    bool asked{false};
    while (!chunks_.empty()) {
        auto const missing = shortage(chunk);
        if (missing <= 0) {
            break;
        }
        if (!asked) {
            asked = true;
            lock.unlock();
            (void)make_room(static_cast<std::size_t>(missing));
            lock.lock();
            continue;
        }
        asked = false;
        chunk_ended_.wait(lock);
    }
    chunks_.push_back(&chunk);
}

void DeviceMemory::end(ChunkMemory& chunk) noexcept {
    {
        MutexLock const lock{chunks_mutex_};
        std::erase(chunks_, &chunk);
        ++frees_;
    }
    chunk_ended_.notify_all();
    freed_.notify_all();
}

ChunkMemory::ChunkMemory(DeviceMemory& memory, std::int64_t expected) : memory_{memory}, expected_{expected} {
    memory_.begin(*this);
    own_chunk = this;
}

ChunkMemory::~ChunkMemory() {
    own_chunk = nullptr;
    memory_.end(*this);
}

void ChunkMemory::add(std::int64_t bytes) noexcept {
    auto const now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    peak_ = std::max(peak_, now);
}

std::uint64_t DeviceMemory::add_holder(MakeRoom make_room) {
    MutexLock const lock{mutex_};
    holders_.emplace(++next_holder_, std::move(make_room));
    return next_holder_;
}

void DeviceMemory::remove_holder(std::uint64_t id) {
    MutexLock const lock{mutex_};
    holders_.erase(id);
}

}  // namespace rapidsmpf::compute

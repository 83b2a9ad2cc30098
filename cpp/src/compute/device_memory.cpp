#include "compute/device_memory.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <rmm/mr/cuda_async_memory_resource.hpp>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>

namespace rapidsmpf::compute {

DeviceMemory::DeviceMemory(std::shared_ptr<MemoryResource> upstream, std::int64_t limit)
    : upstream_{std::move(upstream)}, limit_{limit} {}

bool DeviceMemory::take(std::size_t bytes) noexcept {
    auto const size = static_cast<std::int64_t>(bytes);
    auto const now = in_use_.fetch_add(size, std::memory_order_relaxed) + size;
    if (now > limit_) {
        in_use_.fetch_sub(size, std::memory_order_relaxed);
        return false;
    }
    auto peak = peak_.load(std::memory_order_relaxed);
    while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return true;
}

std::size_t DeviceMemory::make_room(std::size_t bytes) {
    std::lock_guard const lock{mutex_};
    std::size_t freed{0};
    for (auto const& [id, holder] : holders_) {
        if (freed >= bytes) {
            break;
        }
        freed += holder(bytes - freed);
    }
    return freed;
}

void* DeviceMemory::allocate(std::size_t bytes, Stream stream) {
    while (!take(bytes)) {
        // Others may take what was freed for this thread: it asks again as long as there is something to move.
        if (make_room(bytes) == 0) {
            throw OutOfMemory{
                "cannot allocate " + config::format_bytes(bytes)
                + " on the device: " + config::format_bytes(static_cast<std::size_t>(in_use())) + " of "
                + config::format_bytes(static_cast<std::size_t>(limit_)) + " are in use"};
        }
    }
    for (;;) {
        try {
            return upstream_->allocate(bytes, stream);
        } catch (OutOfMemory const&) {
            if (make_room(bytes) == 0) {
                in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
                throw;
            }
        } catch (...) {
            in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
            throw;
        }
    }
}

void DeviceMemory::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    upstream_->deallocate(pointer, bytes, stream);
    in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

std::uint64_t DeviceMemory::add_holder(MakeRoom make_room) {
    std::lock_guard const lock{mutex_};
    holders_.emplace(++next_holder_, std::move(make_room));
    return next_holder_;
}

void DeviceMemory::remove_holder(std::uint64_t id) {
    std::lock_guard const lock{mutex_};
    holders_.erase(id);
}

std::shared_ptr<MemoryResource> make_device_pool() {
    rmm::mr::cuda_async_memory_resource pool;
    return std::make_shared<RmmResource>(
        rmm::device_async_resource_ref{pool});  // which holds a copy: a shared handle
}

}  // namespace rapidsmpf::compute

#include "table/packed/slab.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf::detail {

namespace {

struct SlabSizes {
    // Parts from this size on get an allocation of their own.
    std::size_t own_allocation;
    // A shared allocation takes on parts until it has this size.
    std::size_t slab;
};
constexpr SlabSizes host_slabs{256UL << 10U, 1UL << 20U};
constexpr SlabSizes device_slabs{16UL << 20U, 32UL << 20U};

// Memory that is not accounted for as a whole, but part by part. The owner is an object of std::make_shared:
// detail::prefetch_owner().
struct Slab {
    std::byte* memory;
    std::shared_ptr<void> owner;
};

template <typename Allocate, typename Free>
Slab make_slab(Allocate const& allocate, Free free) {
    struct Owner {
        explicit Owner(Free free_) : free{std::move(free_)} {}
        Owner(Owner const&) = delete;
        Owner& operator=(Owner const&) = delete;
        ~Owner() {
            if (memory != nullptr) {
                free(memory);
            }
        }
        void* memory{nullptr};
        Free free;
    };
    auto owner = std::make_shared<Owner>(std::move(free));
    owner->memory = allocate();
    auto* const memory = static_cast<std::byte*>(owner->memory);
    return {memory, std::move(owner)};
}

Slab allocate_slab(std::size_t size, MemoryType type, BufferResource& br, Stream stream) {
    if (type != MemoryType::DEVICE) {
        return make_slab(
            [&] { return device::allocate_host(size); },
            [size](void* memory) { device::deallocate_host(memory, size); });
    }
    if (auto const resource = br.device_mr()) {
        return make_slab(
            [&] { return resource->allocate(size, stream); },
            [size, resource, stream](void* memory) { resource->deallocate(memory, size, stream); });
    }
    auto& device = br.device();
    return make_slab(
        [&] { return device.allocate(size, stream); },
        [size, &device, stream](void* memory) { device.deallocate(memory, size, stream); });
}

std::vector<std::unique_ptr<Buffer>> allocate(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, MemoryType type,
    SlabSizes const& slabs, BufferResource& br, AllowOverbooking allow, Stream stream) {
    std::size_t total{0};
    for (auto const size : sizes) {
        total += size;
    }
    auto reservation = br.reserve_and_spill(type, total, allow);
    auto const part = [&](std::size_t k) { return order.empty() ? k : order[k]; };
    auto const is_small = [&](std::size_t k) { return sizes[part(k)] < slabs.own_allocation; };
    std::vector<std::unique_ptr<Buffer>> buffers(sizes.size());
    for (std::size_t k = 0; k < sizes.size();) {
        auto end = k;
        std::size_t together{0};
        while (end < sizes.size() && is_small(end) && together < slabs.slab) {
            together += sizes[part(end++)];
        }
        if (end <= k + 1 || together == 0) {  // a large part, a small one alone, or parts without rows
            for (end = std::max(end, k + 1); k < end; ++k) {
                buffers[part(k)] = br.allocate(sizes[part(k)], reservation, stream);
            }
            continue;
        }
        auto slab = allocate_slab(together, type, br, stream);
        br.release(reservation, together);
        auto const whole = br.adopt(type, slab.memory, together, std::move(slab.owner), stream);
        for (std::size_t at = 0; k < end; ++k) {
            auto const size = sizes[part(k)];
            buffers[part(k)] = whole->split_off(at, size);
            at += size;
        }
    }
    return buffers;
}

}  // namespace

MemoryType table_memory_type(BufferResource const& br) {
    return br.device().kind() == DeviceKind::cpu ? MemoryType::DEVICE : MemoryType::HOST;
}

std::vector<std::unique_ptr<Buffer>> allocate_parts(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, BufferResource& br,
    AllowOverbooking allow) {
    return allocate(sizes, order, table_memory_type(br), host_slabs, br, allow, Stream{});
}

DeviceSlab allocate_device_slab(std::size_t size, BufferResource& br, AllowOverbooking allow, Stream stream) {
    auto reservation = br.reserve_device_memory_and_spill(size, allow);
    auto slab = allocate_slab(size, MemoryType::DEVICE, br, stream);
    return {std::shared_ptr<std::byte>{std::move(slab.owner), slab.memory}, std::move(reservation)};
}

std::vector<std::unique_ptr<Buffer>> split_slab(
    DeviceSlab slab, std::span<std::size_t const> sizes, std::span<std::uint32_t const> order,
    BufferResource& br, Stream stream) {
    std::size_t total{0};
    for (auto const size : sizes) {
        total += size;
    }
    slab.reservation.clear();  // from here on the parts count
    auto* const begin = slab.memory.get();
    auto const whole = br.adopt(MemoryType::DEVICE, begin, total, std::move(slab.memory), stream);
    std::vector<std::unique_ptr<Buffer>> buffers(sizes.size());
    std::size_t at{0};
    for (std::size_t k = 0; k < sizes.size(); ++k) {
        auto const part = order.empty() ? k : order[k];
        buffers[part] = whole->split_off(at, sizes[part]);
        at += sizes[part];
    }
    return buffers;
}

std::vector<std::unique_ptr<Buffer>> allocate_device_parts(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, BufferResource& br,
    AllowOverbooking allow, Stream stream) {
    return allocate(sizes, order, MemoryType::DEVICE, device_slabs, br, allow, stream);
}

}  // namespace rapidsmpf::detail

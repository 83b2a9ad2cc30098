#include "slab.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

// Parts from this size on get an allocation of their own.
constexpr std::size_t own_allocation_threshold = 256UL << 10U;
// A shared allocation takes on parts until it has this size.
constexpr std::size_t slab_size = 1UL << 20U;

MemoryReservation reserve(std::size_t size, BufferResource& br, AllowOverbooking allow) {
    auto const type = table_memory_type(br);
    if (type == MemoryType::DEVICE) {
        return br.reserve_device_memory_and_spill(size, allow);
    }
    auto [reservation, overbooked] = br.reserve(type, size, allow);
    RAPIDSMPF_EXPECTS(
        overbooked == 0 || allow == AllowOverbooking::yes,
        "cannot reserve " + std::to_string(size) + " bytes of host memory: " + std::to_string(overbooked)
            + " bytes too much",
        ReservationError);
    return std::move(reservation);
}

// Memory that is not accounted for as a whole, but part by part as it is adopted.
std::shared_ptr<std::byte> allocate_slab(std::size_t size, MemoryType type, Device& device) {
    auto* const memory =
        type == MemoryType::DEVICE ? device.allocate(size, Stream{}) : device::allocate_host(size);
    return {static_cast<std::byte*>(memory), [size, type, &device](std::byte* pointer) {
                if (type == MemoryType::DEVICE) {
                    device.deallocate(pointer, size, Stream{});
                } else {
                    device::deallocate_host(pointer, size);
                }
            }};
}

}  // namespace

MemoryType table_memory_type(BufferResource const& br) {
    return br.device().kind() == DeviceKind::cpu ? MemoryType::DEVICE : MemoryType::HOST;
}

std::vector<std::unique_ptr<Buffer>> allocate_parts(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, BufferResource& br,
    AllowOverbooking allow) {
    std::size_t total{0};
    for (auto const size : sizes) {
        total += size;
    }
    auto reservation = reserve(total, br, allow);
    auto const part = [&](std::size_t k) { return order.empty() ? k : order[k]; };
    auto const is_small = [&](std::size_t k) { return sizes[part(k)] < own_allocation_threshold; };
    std::vector<std::unique_ptr<Buffer>> buffers(sizes.size());
    for (std::size_t k = 0; k < sizes.size();) {
        auto end = k;
        std::size_t together{0};
        while (end < sizes.size() && is_small(end) && together < slab_size) {
            together += sizes[part(end++)];
        }
        if (end <= k + 1 || together == 0) {  // a large part, a small one alone, or parts without rows
            for (end = std::max(end, k + 1); k < end; ++k) {
                buffers[part(k)] = br.allocate(sizes[part(k)], reservation);
            }
            continue;
        }
        auto const slab = allocate_slab(together, reservation.mem_type(), br.device());
        br.release(reservation, together);
        auto* at = slab.get();
        for (; k < end; ++k) {
            auto const size = sizes[part(k)];
            buffers[part(k)] = br.adopt(reservation.mem_type(), at, size, slab);
            at += size;
        }
    }
    return buffers;
}

}  // namespace rapidsmpf::detail

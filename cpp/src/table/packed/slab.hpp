// Memory for the parts of a partitioned table: an allocation of its own for each large part, shared ones for small parts.
//
// Thousands of small allocations for a table would cost more than partitioning it. But a shared allocation lives until its last
// part is gone, so it is kept short (about 1 MiB) and shared by neighbours, which are wanted at about the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::detail {

// Where tables in host memory are put: the device's tier on a CPU, else HOST.
[[nodiscard]] MemoryType table_memory_type(BufferResource const& br);

// Buffers of `sizes` bytes each, starting at multiples of 64. Neighbours are neighbours in `order` (a permutation of
// the indices; empty: as they are). Throws ReservationError when there is no memory.
[[nodiscard]] std::vector<std::unique_ptr<Buffer>> allocate_parts(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, BufferResource& br,
    AllowOverbooking allow);

// The same in DEVICE memory on a GPU, where allocations are dearer and shared up to some MiB; for use on `stream`.
[[nodiscard]] std::vector<std::unique_ptr<Buffer>> allocate_device_parts(
    std::span<std::size_t const> sizes, std::span<std::uint32_t const> order, BufferResource& br,
    AllowOverbooking allow, Stream stream);

// One block of DEVICE memory on a GPU whose parts are known later, and the reservation that it counts as until then.
struct DeviceSlab {
    std::shared_ptr<std::byte> memory;
    MemoryReservation reservation;
};
[[nodiscard]] DeviceSlab allocate_device_slab(
    std::size_t size, BufferResource& br, AllowOverbooking allow, Stream stream);
// Its parts, one after the other in `order`; what is left of the reservation is released.
[[nodiscard]] std::vector<std::unique_ptr<Buffer>> split_slab(
    DeviceSlab slab, std::span<std::size_t const> sizes, std::span<std::uint32_t const> order,
    BufferResource& br, Stream stream);

}  // namespace rapidsmpf::detail

// Small helpers that both ends of a transfer share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::exchange {

// Calls part(offset, size) for the messages that a run of `total` bytes travels as: none for zero bytes.
template <typename Part>
void for_each_part(std::size_t total, std::size_t split_bytes, Part&& part) {
    for (std::size_t offset = 0; offset < total;) {
        std::size_t const size = std::min(total - offset, split_bytes);
        part(offset, size);
        offset += size;
    }
}

// Memory out of a reservation, ready for a transport to use.
[[nodiscard]] std::unique_ptr<Buffer> allocate_for_transport(
    BufferResource& br, std::size_t size, MemoryReservation& memory);
// Where bytes had better lie: near the device, or (those that the host has) where no GPU has to be asked.
enum class Near { device, host };
// Memory of the best tier with room; overbooks the last one rather than wait. Ready for a transport to use.
[[nodiscard]] std::unique_ptr<Buffer> allocate_anywhere(BufferResource& br, std::size_t size, Near near);

}  // namespace rapidsmpf::exchange

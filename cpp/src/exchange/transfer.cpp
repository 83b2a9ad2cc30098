#include "exchange/transfer.hpp"

#include <array>

namespace rapidsmpf::exchange {

std::unique_ptr<Buffer> allocate_for_transport(
    BufferResource& br, std::size_t size, MemoryReservation& memory) {
    auto buffer = br.allocate(size, memory);
    if (buffer->mem_type() == MemoryType::DEVICE && br.device().kind() == DeviceKind::cuda) {
        // Allocation is ordered on a stream that a transport does not know.
        br.device().synchronize(buffer->stream());
    }
    return buffer;
}

std::unique_ptr<Buffer> allocate_anywhere(BufferResource& br, std::size_t size, Near near) {
    constexpr std::array near_device{MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST};
    constexpr std::array near_host{MemoryType::HOST, MemoryType::PINNED_HOST, MemoryType::DEVICE};
    // On a CPU all memory is the device's.
    bool const host = near == Near::host && br.device().kind() != DeviceKind::cpu;
    auto memory = br.reserve_best(size, host ? near_host : near_device);
    return allocate_for_transport(br, size, memory);
}

}  // namespace rapidsmpf::exchange

#include <rapidsmpf/exchange/transfer.hpp>

#include <array>

namespace rapidsmpf::exchange {

std::unique_ptr<Buffer> allocate_anywhere(BufferResource& br, std::size_t size) {
    constexpr std::array tiers{MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST};
    auto reservation = br.reserve_best(size, tiers);
    auto buffer = br.allocate(size, reservation);
    if (buffer->mem_type() == MemoryType::DEVICE && br.device().kind() == DeviceKind::cuda) {
        // Allocation is ordered on a stream that a transport knows nothing of.
        br.device().synchronize(buffer->stream());
    }
    return buffer;
}

}  // namespace rapidsmpf::exchange

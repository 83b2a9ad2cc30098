// The bytes in which a rank offers its shared memory to another (the memory of an Offer).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/device/shared_memory.hpp>

namespace rapidsmpf::exchange::detail {

struct PeerOffer {
    device::SharedMemoryTicket ticket;
    std::uint64_t gate{0};  // where the receiver of the offer says that it writes no more
};

[[nodiscard]] std::vector<std::uint8_t> write_offer(PeerOffer const& offer);
// Throws FormatError.
[[nodiscard]] PeerOffer read_offer(std::span<std::uint8_t const> bytes);

}  // namespace rapidsmpf::exchange::detail

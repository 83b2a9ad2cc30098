// The bytes in which a rank offers its shared memory to another (the memory of an Offer).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/device/detail/shared_memory.hpp>

namespace rapidsmpf::exchange::detail {

struct PeerOffer {
    device::SharedMemoryTicket ticket;
    // The flag in it that has this value as long as the rank may write to others' memory.
    std::uint64_t flag{0};
    std::uint64_t value{0};
    // What else is to be known of the memory of its device (device_peer_memory.cpp); empty: nothing.
    std::vector<std::uint8_t> device;
};

[[nodiscard]] std::vector<std::uint8_t> write_offer(PeerOffer const& offer);
// Throws FormatError.
[[nodiscard]] PeerOffer read_offer(std::span<std::uint8_t const> bytes);

}  // namespace rapidsmpf::exchange::detail

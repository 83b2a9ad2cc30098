#include "exchange/peer_offer.hpp"

#include <cstring>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange::detail {

namespace {

// What has a fixed size; the name of the host and the device's part follow.
struct Fixed {
    std::int64_t pid;
    std::uint64_t size;
    std::uint64_t flag;
    std::uint64_t value;
    std::array<std::uint8_t, 16> secret;
    std::int32_t fd;
    std::uint32_t host_size;
    std::uint64_t device_size;
};
static_assert(sizeof(Fixed) == 64, "no padding: it travels as it is");

}  // namespace

std::vector<std::uint8_t> write_offer(PeerOffer const& offer) {
    auto const& ticket = offer.ticket;
    Fixed const fixed{
        ticket.pid,
        ticket.size,
        offer.flag,
        offer.value,
        ticket.secret,
        ticket.fd,
        static_cast<std::uint32_t>(ticket.host.size()),
        offer.device.size()};
    std::vector<std::uint8_t> bytes(sizeof(Fixed) + ticket.host.size());
    std::memcpy(bytes.data(), &fixed, sizeof(Fixed));
    std::memcpy(bytes.data() + sizeof(Fixed), ticket.host.data(), ticket.host.size());
    bytes.insert(bytes.end(), offer.device.begin(), offer.device.end());
    return bytes;
}

PeerOffer read_offer(std::span<std::uint8_t const> bytes) {
    Fixed fixed{};
    RAPIDSMPF_EXPECTS(bytes.size() >= sizeof(Fixed), "an offer of memory ends too early", FormatError);
    std::memcpy(&fixed, bytes.data(), sizeof(Fixed));
    auto const rest = bytes.subspan(sizeof(Fixed));
    RAPIDSMPF_EXPECTS(
        fixed.host_size <= rest.size() && rest.size() - fixed.host_size == fixed.device_size,
        "an offer of memory is cut off", FormatError);
    auto const host = rest.first(fixed.host_size);
    auto const device = rest.subspan(fixed.host_size);
    PeerOffer offer;
    offer.ticket.host.assign(host.begin(), host.end());
    offer.ticket.pid = fixed.pid;
    offer.ticket.fd = fixed.fd;
    offer.ticket.size = fixed.size;
    offer.ticket.secret = fixed.secret;
    offer.flag = fixed.flag;
    offer.value = fixed.value;
    offer.device.assign(device.begin(), device.end());
    return offer;
}

}  // namespace rapidsmpf::exchange::detail

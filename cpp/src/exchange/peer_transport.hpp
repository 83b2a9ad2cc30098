// A transport through memory that the peer can write to, as the TransportSelector needs it: what ranks tell each other of
// their memory before and while they use it.
//
// There are two: peer_memory.hpp for the host's memory, device_peer_memory.hpp for that of GPUs.
//
// Threading: progress thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exchange/transport.hpp"

namespace rapidsmpf::exchange {

class PeerTransport : public Transport {
  public:
    // What peers need to know of this rank's memory.
    [[nodiscard]] virtual std::vector<std::uint8_t> offer() const = 0;
    // Opens what `peer` has offered; returns why that cannot be, else nothing. Throws FormatError.
    [[nodiscard]] virtual std::string accept(Rank peer, std::vector<std::uint8_t> const& offered) = 0;
    // Whether `peer` has been accepted.
    [[nodiscard]] virtual bool is_open(Rank peer) const noexcept = 0;

    // Regions of this rank's memory that `peer` has not been told of. It must hear of them before it is given a place
    // in them.
    [[nodiscard]] virtual std::vector<device::ExportedRegion> take_regions(Rank peer) = 0;
    // Opens a region that `peer` tells of. Throws FormatError, and std::runtime_error when it cannot be opened.
    virtual void add_region(Rank peer, device::ExportedRegion const& region) = 0;

    // Does what has to be done on the progress thread; returns whether there was anything.
    virtual bool progress() = 0;
    // Writes no more, and lets the peers know.
    virtual void close() noexcept = 0;
};

}  // namespace rapidsmpf::exchange

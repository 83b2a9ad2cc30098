// Payloads through peer memory on a CPU host: the receiver grants blocks of its shared memory, which the
// sender has mapped, and the sender copies the pieces straight into them.
//
// One copy at memory speed, however small the pieces are. A piece gets a block of its own, which becomes its Buffer; what
// is smaller than a few pages lands together with others, and is copied out. The sender copies from progress(), a slice
// at a time, so that the progress thread stays responsive.
//
// Who stops. A sender that gives a frame up says so by its last message in the operation. When the communicator has failed no
// message counts any more. So each rank has a flag in its own memory that it clears once it writes no more, and that its peers
// can see. A block that was granted and not written is kept out of use until the peer's flag is cleared, or its process
// is gone.
//
// Threading: progress thread only, but for the destructors of what it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/device/detail/shared_memory.hpp>

#include "exchange/peer_transport.hpp"

namespace rapidsmpf::exchange {

namespace detail {
class PeerWrite;
class Writer;
class WriterLivenessFlag;
}  // namespace detail

class PeerMemory final : public PeerTransport {
  public:
    // Null, with the reason, where this process cannot have shared memory.
    [[nodiscard]] static std::unique_ptr<PeerMemory> make(Communicator const& comm, std::string& reason);

    PeerMemory(Communicator const& comm, device::SharedMemory& memory);
    ~PeerMemory() override;

    [[nodiscard]] std::vector<std::uint8_t> offer() const override;
    [[nodiscard]] std::string accept(Rank peer, std::vector<std::uint8_t> const& offered) override;
    [[nodiscard]] bool is_open(Rank peer) const noexcept override;
    // All of it is one region, which the offer tells of.
    [[nodiscard]] std::vector<device::ExportedRegion> take_regions(Rank peer) override;
    void add_region(Rank peer, device::ExportedRegion const& region) override;

    // Copies a slice of what is to be written.
    bool progress() override;
    void close() noexcept override;

    [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::peer_memory; }
    [[nodiscard]] std::unique_ptr<ReceiveTransfer> grant(
        PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) override;
    // Throws FormatError when the addresses are none of the peer's.
    [[nodiscard]] std::unique_ptr<SendTransfer> write(
        PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
        Settings const& settings) override;

    // Pieces below this share a block.
    static constexpr std::size_t small_piece = std::size_t{16} << 10U;

  private:
    struct Peer {
        std::shared_ptr<detail::Writer const> writer;          // null: not accepted
        std::deque<std::shared_ptr<detail::PeerWrite>> queue;  // first come, first written
    };
    [[nodiscard]] Peer& peer(Rank rank) { return peers_.at(static_cast<std::size_t>(rank)); }

    device::SharedMemory& memory_;
    std::unique_ptr<detail::WriterLivenessFlag> writing_;  // set until this rank writes no more
    std::vector<Peer> peers_;
    std::size_t next_{0};  // whose turn it is
    bool closed_{false};
};

}  // namespace rapidsmpf::exchange

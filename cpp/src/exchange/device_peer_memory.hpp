// Payloads through peer memory between the GPUs of one host: the receiver grants blocks of its exported memory, which the
// sender has opened, and kernels of the sender write the pieces straight into them.
//
// One kernel writes all pieces of a frame, however small. A piece gets a block of its own, which becomes its Buffer;
// what is smaller than 64 KiB shares one with others, which is free when all of them are gone. Pieces that have been spilled
// are read from where they are. To a single peer, what is larger than a few MiB goes by the copy engine; to several, kernels
// write to all at a time, with few frames on their way to each: a copy engine serves one peer after the other, and who comes to
// the same one has to wait.
//
// Who stops: as in peer_memory.hpp. A rank shows that it writes no more when its kernels are done.
//
// Threading: progress thread only, but for the destructors of what it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/device/detail/exported_memory.hpp>

#include "exchange/peer_transport.hpp"

namespace rapidsmpf::exchange {

namespace detail {
class DeviceRoute;
class DeviceWrite;
class Writer;
class WriterLivenessFlag;
}  // namespace detail

class DevicePeerMemory final : public PeerTransport {
  public:
    // Null, with the reason, where this process cannot have memory of `device` that others can write to.
    [[nodiscard]] static std::unique_ptr<DevicePeerMemory> make(
        Communicator const& comm, Device& device, std::string& reason);

    // The same with memory that is not the device's own, for tests.
    [[nodiscard]] static std::unique_ptr<DevicePeerMemory> make(
        Communicator const& comm, Device& device, device::ExportedMemory& memory, std::string& reason);

    // `memory` and its device outlive it.
    DevicePeerMemory(
        Communicator const& comm, Device& device, device::ExportedMemory& memory,
        std::unique_ptr<detail::WriterLivenessFlag> writing);
    ~DevicePeerMemory() override;

    [[nodiscard]] std::vector<std::uint8_t> offer() const override;
    [[nodiscard]] std::string accept(Rank peer, std::vector<std::uint8_t> const& offered) override;
    [[nodiscard]] bool is_open(Rank peer) const noexcept override;
    [[nodiscard]] std::vector<device::ExportedRegion> take_regions(Rank peer) override;
    void add_region(Rank peer, device::ExportedRegion const& region) override;
    // The GPU writes by itself.
    bool progress() override { return false; }
    void close() noexcept override;

    [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::device_peer_memory; }
    // Only for memory of the device; what goes to the host's comes as messages.
    [[nodiscard]] std::unique_ptr<ReceiveTransfer> grant(
        PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) override;
    // Throws FormatError when the addresses are none of the peer's.
    [[nodiscard]] std::unique_ptr<SendTransfer> write(
        PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
        Settings const& settings) override;

    // Pieces below this share a block.
    static constexpr std::size_t small_piece = std::size_t{64} << 10U;

  private:
    struct Peer {
        std::shared_ptr<detail::Writer const> writer;    // null: not accepted
        std::shared_ptr<device::ImportedMemory> memory;  // of its GPU
        std::shared_ptr<detail::DeviceRoute> route;      // set with memory
        std::uint32_t told{1};  // regions of this rank that it knows; the first is in the offer
    };
    // Among the peers that have been accepted.
    void share_processors();
    [[nodiscard]] Peer& peer(Rank rank) { return peers_.at(static_cast<std::size_t>(rank)); }

    Device& device_;
    device::ExportedMemory& memory_;
    std::unique_ptr<detail::WriterLivenessFlag> writing_;  // set until this rank writes no more
    std::vector<Peer> peers_;
    std::vector<std::weak_ptr<detail::DeviceWrite>> writes_;  // that may be going on
    bool closed_{false};
};

}  // namespace rapidsmpf::exchange

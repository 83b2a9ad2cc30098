// How the payload of granted frames gets from rank to rank: the seam under inbox and outbox.
//
// There are two kinds. *Messages*: the receiver posts receives, the sender sends (two-sided). *Peer memory*: the receiver sets
// aside memory that the sender can write to, and says with the grant at which remote addresses; the sender writes the pieces
// there (a put), and says when it has. So a transport does three things:
//   grant    makes room for a frame of a peer: a ReceiveTransfer
//   write    brings the pieces of a granted frame to the peer: a SendTransfer
//   notify   is the operation's part: grants carry the ReceiveTransfer's addresses, and once a SendTransfer is done that asks
//            for it (needs_notice()) the peer is told, and tells its ReceiveTransfer
// Which kind a pair of ranks uses is decided once (transport_selector.hpp).
//
// A RemoteAddress is a region and an offset in it, because a device's memory comes in several allocations, each with a handle
// of its own (cudaIpcMemHandle_t) that its peers open once: they are the regions, to be offered as they are made. The bytes
// are in place, and the pieces no longer read, when SendTransfer::poll() says so: that may be the event of a kernel on a
// stream.
//
// Not thread-safe. Used on the progress thread, but for destructors (any thread).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/announced_frame.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// Room for a frame that was granted to a peer. When it is destroyed before everything has come, what still may come
// does no harm: its memory is out of use until then.
class ReceiveTransfer {
  public:
    // Called for each chunk that has come whole.
    using Received = std::function<void(PieceHeader const&, PackedData)>;

    ReceiveTransfer() = default;
    ReceiveTransfer(ReceiveTransfer const&) = delete;
    ReceiveTransfer& operator=(ReceiveTransfer const&) = delete;
    virtual ~ReceiveTransfer() = default;

    // Where the peer is to write the pieces that have data, in their order. Empty: it sends messages.
    [[nodiscard]] virtual std::span<RemoteAddress const> addresses() const noexcept { return {}; }
    // How many messages the peer sends for it.
    [[nodiscard]] virtual std::uint64_t messages() const noexcept { return 0; }
    // Whether everything has come.
    [[nodiscard]] virtual bool poll() = 0;
    // Hands the pieces on.
    virtual void deliver(Received const& received) = 0;
    // Only where there are addresses: the peer has written everything, or will write no more.
    virtual void set_written() noexcept {}
    virtual void set_abandoned() noexcept {}
};

// A granted frame on its way to a peer. Destroying it stops what is not done.
class SendTransfer {
  public:
    // A piece's data, pinned in memory; null if there is none.
    using Pieces = std::vector<std::shared_ptr<Buffer const>>;

    SendTransfer() = default;
    SendTransfer(SendTransfer const&) = delete;
    SendTransfer& operator=(SendTransfer const&) = delete;
    virtual ~SendTransfer() = default;

    // Hands it to the transport if its bytes are ready; until it has, no later frame may be.
    [[nodiscard]] virtual bool start() = 0;
    // Whether the pieces are no longer read and, as far as this rank can tell, have arrived.
    [[nodiscard]] virtual bool poll() = 0;
    [[nodiscard]] virtual std::uint64_t messages() const noexcept { return 0; }
    // Whether the peer has to be told when it is done.
    [[nodiscard]] virtual bool needs_notice() const noexcept { return false; }
};

class Transport {
  public:
    // A pair of ranks and what moves between them.
    struct PeerRoute {
        Rank peer;
        Tag tag;
        std::shared_ptr<BufferResource> br;
    };

    virtual ~Transport() = default;

    [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
    // Room for a frame out of `memory`, which holds frame.memory_needed() bytes. Null, with both arguments untouched, when
    // this kind has none: messages always have.
    [[nodiscard]] virtual std::unique_ptr<ReceiveTransfer> grant(
        PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) = 0;
    // Brings pieces to where the peer wants them (`addresses`, by pieces that have data). All pieces stay in memory
    // and unchanged as long as it lives.
    [[nodiscard]] virtual std::unique_ptr<SendTransfer> write(
        PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
        Settings const& settings) = 0;
};

}  // namespace rapidsmpf::exchange

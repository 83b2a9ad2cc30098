// Payloads as messages of the communicator: works between any two ranks.
//
// The small pieces of a frame travel gathered in one message, large ones from where they are, each in messages of
// bounded length.
#pragma once

#include <memory>
#include <vector>

#include "exchange/transport.hpp"

namespace rapidsmpf::exchange {

class MessageTransport final : public Transport {
  public:
    explicit MessageTransport(Communicator& comm) : comm_{comm} {}

    [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::messages; }
    [[nodiscard]] std::unique_ptr<ReceiveTransfer> grant(
        PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) override;
    [[nodiscard]] std::unique_ptr<SendTransfer> write(
        PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
        Settings const& settings) override;

  private:
    Communicator& comm_;
};

}  // namespace rapidsmpf::exchange

// Who may write to whose memory, and how long: shared by the transports through peer memory.
//
// Each rank has a flag in its shared memory that it clears once it writes no more, and that its peers can see. Memory that
// was granted and not written is kept out of use until the peer's flag is cleared, or its process is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>
#include <rapidsmpf/device/detail/shared_view.hpp>

#include "exchange/peer_offer.hpp"
#include "exchange/transport.hpp"

namespace rapidsmpf::exchange::detail {

// A peer, as it writes to this rank's memory.
class Writer {
  public:
    Writer(std::shared_ptr<device::SharedView> view, std::uint64_t flag, std::uint64_t value)
        : view_{std::move(view)}, flag_{flag}, value_{value} {}
    // Null, with the reason, when its flag cannot be seen. Throws FormatError.
    [[nodiscard]] static std::shared_ptr<Writer const> open(PeerOffer const& offer, std::string& reason) {
        RAPIDSMPF_EXPECTS(
            device::SharedView::contains_flag(offer.flag), "its flag is outside of its memory", FormatError);
        auto view = device::SharedView::open(offer.ticket, reason);
        return view ? std::make_shared<Writer const>(std::move(view), offer.flag, offer.value) : nullptr;
    }

    [[nodiscard]] bool may_write() const noexcept {
        return view_->has_flag(flag_, value_) && view_->owner_is_alive();
    }
    // Its host memory.
    [[nodiscard]] std::shared_ptr<device::SharedView> const& view() const noexcept { return view_; }

  private:
    std::shared_ptr<device::SharedView> view_;
    std::uint64_t flag_;
    std::uint64_t value_;
};

// Leaves the pieces that have data: `addresses` says where each of these goes. Throws FormatError when it does not.
inline void match_addresses(SendTransfer::Pieces& pieces, std::vector<RemoteAddress> const& addresses) {
    std::erase_if(pieces, [](auto const& piece) { return piece->size() == 0; });
    RAPIDSMPF_EXPECTS(
        addresses.size() == pieces.size(),
        "it gave " + std::to_string(addresses.size()) + " addresses for " + std::to_string(pieces.size())
            + " pieces",
        FormatError);
}

// A ReceiveTransfer that its peer writes to.
class WrittenReceiveTransfer : public ReceiveTransfer {
  public:
    explicit WrittenReceiveTransfer(std::shared_ptr<Writer const> writer) : writer_{std::move(writer)} {}

    [[nodiscard]] bool poll() override { return written_; }
    void set_written() noexcept override { written_ = ended_ = true; }
    void set_abandoned() noexcept override { ended_ = true; }

  protected:
    // Called by destructors: a block of `memory` that the peer may still write to stays out of use until it may not.
    template <typename Memory, typename Block>
    void release_or_quarantine(Memory& memory, std::shared_ptr<Block> block) const {
        if (!ended_ && block) {
            memory.quarantine(std::move(block), [writer = writer_] { return !writer->may_write(); });
        }
    }

  private:
    std::shared_ptr<Writer const> writer_;
    bool written_{false};
    bool ended_{false};  // the peer writes to it no more
};

// This rank, as it writes to others' memory.
class WriterLivenessFlag {
  public:
    explicit WriterLivenessFlag(device::SharedMemory& memory) : memory_{memory}, flag_{memory.make_flag()} {}
    [[nodiscard]] std::vector<std::uint8_t> offer(std::vector<std::uint8_t> device = {}) const {
        return write_offer(PeerOffer{memory_.ticket(), flag_->offset(), flag_->value(), std::move(device)});
    }
    void clear() noexcept { flag_->clear(); }

  private:
    device::SharedMemory& memory_;
    std::unique_ptr<device::SharedFlag> flag_;
};

}  // namespace rapidsmpf::exchange::detail

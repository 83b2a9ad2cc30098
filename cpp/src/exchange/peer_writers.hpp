// Who may write to whose memory, and how long: shared by the transports through peer memory.
//
// Each rank has a word in its shared memory that it clears once it writes no more, and that its peers can see. Memory that
// was granted and not written is kept out of use until the peer's word is cleared, or its process is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/shared_memory.hpp>
#include <rapidsmpf/device/shared_view.hpp>

#include "peer_offer.hpp"

namespace rapidsmpf::exchange::detail {

// A peer, as it writes to this rank's memory.
class Writer {
  public:
    Writer(std::shared_ptr<device::SharedView> view, std::uint64_t word, std::uint64_t value)
        : view_{std::move(view)}, word_{word}, value_{value} {}
    // Null, with the reason, when its word cannot be seen. Throws FormatError.
    [[nodiscard]] static std::shared_ptr<Writer const> open(PeerOffer const& offer, std::string& reason) {
        RAPIDSMPF_EXPECTS(
            device::SharedView::contains_word(offer.word), "its word is outside of its memory", FormatError);
        auto view = device::SharedView::open(offer.ticket, reason);
        return view ? std::make_shared<Writer const>(std::move(view), offer.word, offer.value) : nullptr;
    }

    [[nodiscard]] bool may_write() const noexcept {
        return view_->has_word(word_, value_) && view_->owner_is_alive();
    }
    // Its host memory.
    [[nodiscard]] std::shared_ptr<device::SharedView> const& view() const noexcept { return view_; }

  private:
    std::shared_ptr<device::SharedView> view_;
    std::uint64_t word_;
    std::uint64_t value_;
};

// This rank, as it writes to others' memory.
class WritingWord {
  public:
    explicit WritingWord(device::SharedMemory& memory) : memory_{memory}, word_{memory.make_word()} {}
    [[nodiscard]] std::vector<std::uint8_t> offer(std::vector<std::uint8_t> device = {}) const {
        return write_offer(PeerOffer{memory_.ticket(), word_->offset(), word_->value(), std::move(device)});
    }
    void clear() noexcept { word_->clear(); }

  private:
    device::SharedMemory& memory_;
    std::unique_ptr<device::SharedWord> word_;
};

}  // namespace rapidsmpf::exchange::detail

#include "exchange/receive_path.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "exchange/peer_error.hpp"

namespace rapidsmpf::exchange {

namespace {
// How long a frame waits for memory while nothing comes free.
constexpr std::chrono::milliseconds longest_memory_wait{10};
// Then peers hear of those that have been granted, and may begin.
constexpr int most_grants_at_a_time = 8;
}  // namespace

ReceivePath::ReceivePath(
    Settings const& settings, std::shared_ptr<BufferResource> br, PieceUnpacker const& unpacker,
    ReceiveBudget& budget, TransportSelector& transports, std::weak_ptr<Waker> waker, Tag payload_tag,
    Rank nranks)
    : settings_{settings},
      br_{std::move(br)},
      unpacker_{unpacker},
      budget_{budget},
      transports_{transports},
      waker_{std::move(waker)},
      payload_tag_{payload_tag} {
    for (Rank peer = 0; peer < nranks; ++peer) {
        inboxes_.emplace_back(peer);
    }
}

void ReceivePath::take_in(Rank peer, OperationMessage const& message, Arrivals& arrivals) {
    for (auto const& list : message.eager) {
        inbox(peer).take_eager(list, *br_, [&](PieceHeader const& header, PackedData chunk) {
            unpacker_.unpack(peer, header, std::move(chunk), arrivals);
        });
    }
    for (auto const& list : message.frames) {
        auto metadata = list.metadata;
        for (auto const& piece : list.pieces) {
            auto const own = metadata.first(piece.metadata_size);
            metadata = metadata.subspan(own.size());
            unpacker_.check(piece, own);
        }
        frames_.emplace_back(peer, AnnouncedFrame{list, budget_});
        frames_.back().wait.emplace(*br_->statistics(), statistic::id("exchange-grant-wait-time"));
    }
}

std::optional<MemoryReservation> ReceivePath::memory_for(WaitingFrame& waiting) {
    auto const bytes = waiting.frame.memory_needed();
    if (!waiting.memory) {
        // On a CPU all memory is the device's; elsewhere the host takes what the device has no room for.
        constexpr std::array tiers{MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST};
        auto const count = br_->device().kind() == DeviceKind::cpu ? 1U : tiers.size();
        if (auto memory = br_->try_reserve_best(bytes, std::span{tiers}.first(count))) {
            return memory;
        }
        auto on_done = [weak = waker_] {
            if (auto const waker = weak.lock()) {
                waker->wake();
            }
        };
        // What is held by others may never come free, and their query needs these chunks to go on.
        waiting.memory = br_->request(
            tiers[count - 1], bytes, AllowOverbooking::yes, std::move(on_done),
            std::min<BufferResource::Duration>(br_->reserve_timeout(), longest_memory_wait));
    }
    if (!waiting.memory->is_done()) {
        return std::nullopt;
    }
    return waiting.memory->take();
}

bool ReceivePath::may_grant_first() {
    return !frames_.empty() && transports_.incoming(frames_.front().source) != nullptr
           && frames_.front().frame.ticket.try_grant(settings_.receive_limit);
}

bool ReceivePath::grant() {
    bool any = false;
    waits_for_memory_ = false;
    for (int i = 0; i < most_grants_at_a_time && may_grant_first(); ++i) {
        auto memory = memory_for(frames_.front());
        if (!memory) {
            waits_for_memory_ = true;
            break;
        }
        auto const source = frames_.front().source;
        auto frame = std::move(frames_.front().frame);
        frames_.pop_front();
        inbox(source).grant(std::move(frame), transports_, {source, payload_tag_, br_}, std::move(*memory));
        any = true;
    }
    return any;
}

bool ReceivePath::poll(Arrivals& arrivals) {
    bool any = false;
    for (Rank peer = 0; peer < static_cast<Rank>(inboxes_.size()); ++peer) {
        any = on_behalf_of(
                  peer,
                  [&] {
                      return inbox(peer).poll([&](PieceHeader const& header, PackedData chunk) {
                          unpacker_.unpack(peer, header, std::move(chunk), arrivals);
                      });
                  })
              || any;
    }
    return any;
}

void ReceivePath::compose_grants(Rank peer, MessageWriter& writer) {
    for (auto const& grant : inbox(peer).take_grants()) {
        grant.addresses.empty() ? writer.grants(grant.frames) : writer.addresses(grant.addresses);
    }
}

void ReceivePath::compose_credit(Rank peer, MessageWriter& writer) {
    if (!writer.has_sections() && inbox(peer).credit() <= settings_.eager_bytes / 2) {
        return;
    }
    if (auto const credit = inbox(peer).take_credit(); credit > 0) {
        writer.credit(credit);
    }
}

bool ReceivePath::has_to_look() const noexcept {
    return std::any_of(
        inboxes_.begin(), inboxes_.end(), [](Inbox const& from) { return from.has_to_look(); });
}

bool ReceivePath::in_flight() const noexcept {
    return std::any_of(inboxes_.begin(), inboxes_.end(), [](Inbox const& from) { return from.in_flight(); });
}

void ReceivePath::discard() {
    frames_.clear();
    for (auto& from : inboxes_) {
        from.discard();
    }
}

void ReceivePath::cut_off() {
    frames_.clear();
    for (Rank peer = 0; peer < static_cast<Rank>(inboxes_.size()); ++peer) {
        inboxes_[static_cast<std::size_t>(peer)] = Inbox{peer};
    }
}

}  // namespace rapidsmpf::exchange

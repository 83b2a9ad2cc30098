// What a channel counts, for itself and for each actor at its ends: messages, rows, bytes and waits.
#include <memory>
#include <utility>

#include <rapidsmpf/streaming/channel.hpp>

#include "streaming/channel_parts.hpp"

namespace rapidsmpf::streaming {

Channel::State Channel::state() const {
    MutexLock const lock{mutex_};
    State state{};
    state.messages = queue_.size();
    state.bytes = bytes_;
    state.senders = senders_.size();
    state.receivers = receivers_.size();
    state.drainers = drainers_.size();
    state.sent = sent_;
    state.sent_bytes = sent_bytes_;
    state.sent_rows = sent_rows_;
    state.is_finished = finished_;
    state.is_closed = shut_ || error_ != nullptr;
    state.has_outside_producer = outside_producer_;
    state.has_outside_consumer = outside_consumer_;
    return state;
}

Channel::Share Channel::share_of(std::uint64_t actor) const {
    MutexLock const lock{mutex_};
    Share share{};
    auto const now = coarse_now();
    for (auto const& use : uses_) {
        if (use->actor != actor) {
            continue;
        }
        if (use->receives) {
            share.received = use->messages;
            share.received_rows = use->rows;
            share.received_bytes = use->bytes;
            share.for_input = use->waits.until(now);
            share.waits_for_input = use->waits.any();
        } else {
            share.sent = use->messages;
            share.sent_rows = use->rows;
            share.sent_bytes = use->bytes;
            share.for_room = use->waits.until(now);
            share.waits_for_room = use->waits.any();
            share.waits_for_end = use->drains.any();
        }
    }
    return share;
}

void Channel::set_trace(std::shared_ptr<NetworkTrace> trace) {
    MutexLock const lock{mutex_};
    trace_ = std::move(trace);
}

Channel::Use& Channel::find_use(std::uint64_t actor, Action action) {
    bool const receives = action == Action::receive;
    for (auto const& use : uses_) {
        if (use->actor == actor && use->receives == receives) {
            return *use;
        }
    }
    auto use = std::make_unique<Use>();
    use->actor = actor;
    use->receives = receives;
    return *uses_.emplace_back(std::move(use));
}

void Channel::discount(Waiter const& waiter) noexcept {
    if (waiter.use != nullptr) {
        auto const& description = waiter.message.description();
        --waiter.use->messages;
        waiter.use->rows -= description.rows();
        waiter.use->bytes -= description.total_bytes();
    }
}

void Channel::begin_wait(Waiter& waiter) noexcept {
    if (waiter.use != nullptr) {
        waiter.since = coarse_now();
        waiter.use->waits.begin(waiter.since);
        if (waiter.action == Action::drain) {
            waiter.use->drains.begin(waiter.since);
        }
    }
}

void Channel::end_wait(Waiter& waiter) noexcept {
    if (waiter.since != 0) {
        auto const now = coarse_now();
        waiter.use->waits.end(waiter.since, now);
        if (waiter.action == Action::drain) {
            waiter.use->drains.end(waiter.since, now);
        }
        waiter.since = 0;
    }
}

void Channel::trace(Waiter const& waiter, Message const* message) noexcept {
    NetworkTrace::Event event;
    event.what = waiter.action == Action::send      ? NetworkTrace::What::send
                 : waiter.action == Action::receive ? NetworkTrace::What::receive
                                                    : NetworkTrace::What::drain;
    event.actor = waiter.use->actor;
    event.lane = waiter.lane;
    event.channel = id_;
    if (message != nullptr) {
        event.sequence = message->sequence();
        event.rows = message->description().rows();
        event.bytes = message->description().total_bytes();
        event.has_message = true;
    }
    // What has not waited has taken no time. It may have begun before the trace.
    event.begin = waiter.begun == 0 ? NetworkTrace::now() : waiter.begun;
    event.end = waiter.since == 0 ? event.begin : NetworkTrace::now();
    trace_->add(event);
}

}  // namespace rapidsmpf::streaming

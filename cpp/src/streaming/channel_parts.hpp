// The parts of a channel that its sources share: what it counts for each actor, and how it hears that a move has ended.
#pragma once

#include <cstdint>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/channel.hpp>

#include "streaming/activity.hpp"
#include "streaming/parked_message.hpp"

namespace rapidsmpf::streaming {

// What one actor has done at one end of the channel.
struct Channel::Use {
    std::uint64_t actor{0};
    bool receives{false};
    std::uint64_t messages{0};
    std::uint64_t rows{0};
    std::uint64_t bytes{0};
    WaitSum waits;
    WaitSum drains;  // those of the waits that are for the end
};

// The arbiter's word that a move has ended, for as long as the channel lives.
class Channel::Moves final : public MoveListener {
  public:
    explicit Moves(Channel& channel) noexcept : channel_{&channel} {}
    void forget() {
        MutexLock const lock{mutex_};
        channel_ = nullptr;
    }
    void moved() noexcept override {
        MutexLock const lock{mutex_};
        if (channel_ != nullptr) {
            channel_->on_moved();
        }
    }

  private:
    Mutex mutex_;
    Channel* channel_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// Inline: every message that goes through a channel is counted twice.

inline Channel::Use& Channel::use_of(Activity const& activity, Action action) {
    auto const end = 2 * activity.id() + (action == Action::receive ? 1 : 0);
    for (auto const& [known, use] : uses_) {
        if (known == end) {
            return *use;
        }
    }
    return add_use(activity.id(), action);
}

inline void Channel::count(Waiter const& waiter, Message const& message) noexcept {
    if (waiter.use == nullptr) {
        return;
    }
    auto const& description = message.description();
    ++waiter.use->messages;
    waiter.use->rows += description.rows();
    waiter.use->bytes += description.total_bytes();
    if (trace_) {
        trace(waiter, &message);
    }
}

}  // namespace rapidsmpf::streaming

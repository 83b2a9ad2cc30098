// The parts of a channel that its sources share: what it counts for each actor, and how it hears that a move has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

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

struct Channel::Entry {
    Message message;
    std::unique_ptr<ParkedMessage> parked;  // its payload, if it is not in the message
    std::size_t bytes{0};                   // as counted when it came in
    bool unspillable{false};
    Entry* next{nullptr};
    Entry* before{nullptr};
};

// Inline: every message that goes through a channel comes through what follows, twice.

inline Channel::Entry& Channel::EntryList::make(Message&& message) {
    Entry* entry = spare_;
    if (entry == nullptr) {
        entry = std::make_unique<Entry>().release();
    } else {
        spare_ = entry->next;
        --num_spare_;
    }
    entry->bytes = message.description().total_bytes();
    entry->message = std::move(message);
    ++size_;
    return *entry;
}

inline Channel::Entry& Channel::EntryList::push_back(Message&& message) {
    auto& entry = make(std::move(message));
    entry.next = nullptr;
    entry.before = last_;
    (last_ == nullptr ? first_ : last_->next) = &entry;
    last_ = &entry;
    return entry;
}

inline Message Channel::EntryList::pop_front() noexcept {
    Entry* const entry = first_;
    first_ = entry->next;
    (first_ == nullptr ? last_ : first_->before) = nullptr;
    --size_;
    Message message = std::move(entry->message);
    if (num_spare_ < most_spare) {
        entry->unspillable = false;
        entry->next = spare_;
        spare_ = entry;
        ++num_spare_;
    } else {
        std::unique_ptr<Entry> const dropped{entry};
    }
    return message;
}

inline Channel::Use& Channel::use_of(Activity const& activity, Action action) {
    Use*& last = action == Action::receive ? last_receiver_ : last_sender_;
    if (last == nullptr || last->actor != activity.id()) {
        last = &find_use(activity.id(), action);
    }
    return *last;
}

inline void Channel::count(Waiter const& waiter, Message const& message, std::size_t bytes) noexcept {
    if (waiter.use == nullptr) {
        return;
    }
    ++waiter.use->messages;
    waiter.use->rows += message.description().rows();
    waiter.use->bytes += bytes;
    if (trace_) {
        trace(waiter, &message);
    }
}

inline bool Channel::has_room(Message const& message) const noexcept {
    if (queue_.empty()) {
        return true;
    }
    auto const size = message.description().total_bytes();
    return queue_.size() < capacity_.messages() && bytes_ <= capacity_.bytes()
           && size <= capacity_.bytes() - bytes_;
}

inline bool Channel::can_pop(WaiterList& woken) {
    if (error_ || queue_.empty() || &queue_.front() == spilling_) {
        return false;
    }
    return !queue_.front().parked || restore_front(woken);
}

inline void Channel::push(Waiter& sender) {
    auto& entry = queue_.push_back(std::move(sender.message));
    count(sender, entry.message, entry.bytes);
    sender.outcome = Outcome::done;
    bytes_ += entry.bytes;
    ++sent_;
    sent_bytes_ += entry.bytes;
    sent_rows_ += entry.message.description().rows();
    // What is handed out at once need not be told of.
    if (resource_ && entry.bytes > 0 && (receivers_.empty() || queue_.size() > 1)) {
        park(entry);
    }
}

inline void Channel::pop(Waiter& receiver) noexcept {
    auto const bytes = queue_.front().bytes;
    bytes_ -= bytes;
    receiver.message = queue_.pop_front();
    receiver.outcome = Outcome::done;
    count(receiver, receiver.message, bytes);
}

}  // namespace rapidsmpf::streaming

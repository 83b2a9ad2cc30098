// How messages that wait in a channel leave memory, and come back when their turn comes.
#include <exception>
#include <memory>
#include <utility>

#include <rapidsmpf/streaming/channel.hpp>

#include "streaming/channel_parts.hpp"

namespace rapidsmpf::streaming {

void Channel::on_moved() {
    WaiterList woken;
    MutexLock lock{mutex_};
    auto const ended = std::exchange(restoring_, std::nullopt);
    match(woken);
    wake(woken);
}

std::size_t Channel::spill(std::size_t amount) {
    std::size_t freed = 0;
    UniqueLock lock{mutex_};
    while (freed < amount && !shut_ && !error_) {
        // What was queued last is needed last.
        auto* victim = queue_.last();
        while (victim != nullptr
               && (victim->unspillable || victim->parked || !victim->message.description().spillable())) {
            victim = victim->before;
        }
        if (victim == nullptr || spilling_ != nullptr) {
            break;
        }
        auto& entry = *victim;
        spilling_ = &entry;
        auto const position = static_cast<SpillableBuffer::NextUse>(queue_.size());
        lock.unlock();
        auto const outside = executor_->outside_wait();
        std::size_t bytes = 0;
        std::unique_ptr<ParkedMessage> parked;
        std::exception_ptr error;
        try {
            if (entry.message.packing() == Packing::copies) {
                parked = ParkedMessage::pack_below(entry.message, *resource_, position, moves_);
                bytes = parked ? entry.bytes : 0;
            } else {
                bytes = entry.message.spill();
            }
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        entry.parked = std::move(parked);
        entry.unspillable = bytes == 0;
        spilling_ = nullptr;
        spilled_.notify_all();
        WaiterList woken;
        match(woken);  // a receiver may have come to this message meanwhile
        wake(woken);
        if (error) {
            std::rethrow_exception(error);
        }
        freed += bytes;
    }
    return freed;
}

bool Channel::restore_front(WaiterList& woken) {
    auto& front = queue_.front();
    try {
        if (!front.parked->try_restore(front.message)) {
            if (!restoring_) {
                restoring_.emplace(executor_->outside_wait());
            }
            return false;  // on_moved() is called when it is worth trying again
        }
        front.parked = nullptr;
        if (front.next != nullptr && front.next->parked) {
            front.next->parked->prefetch();
        }
        return true;
    } catch (...) {
        // What waits is lost: that is a failure of the channel. The messages go with it.
        error_ = std::current_exception();
        settle_all(senders_, Outcome::failed, woken);
        settle_all(receivers_, Outcome::failed, woken);
        settle_all(drainers_, Outcome::failed, woken);
        return false;
    }
}

void Channel::park(Entry& entry) {
    auto const position = static_cast<SpillableBuffer::NextUse>(queue_.size());
    entry.parked = ParkedMessage::park(entry.message, position, moves_);
}

}  // namespace rapidsmpf::streaming

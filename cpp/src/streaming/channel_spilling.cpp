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
        auto victim = queue_.rbegin();
        while (victim != queue_.rend()
               && (victim->unspillable || victim->parked || !victim->message.description().spillable())) {
            ++victim;
        }
        if (victim == queue_.rend() || spilling_ != nullptr) {
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

bool Channel::can_pop(WaiterList& woken) {
    if (error_ || queue_.empty() || &queue_.front() == spilling_) {
        return false;
    }
    auto& front = queue_.front();
    if (!front.parked) {
        return true;
    }
    try {
        if (!front.parked->try_restore(front.message)) {
            if (!restoring_) {
                restoring_.emplace(executor_->outside_wait());
            }
            return false;  // on_moved() is called when it is worth trying again
        }
        front.parked = nullptr;
        if (queue_.size() > 1 && queue_[1].parked) {
            queue_[1].parked->prefetch();
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

void Channel::push(Message message) {
    auto& entry = queue_.emplace_back(std::move(message));
    bytes_ += entry.bytes;
    ++sent_;
    sent_bytes_ += entry.bytes;
    sent_rows_ += entry.message.description().rows();
    // What is handed out at once need not be told of.
    if (resource_ && entry.bytes > 0 && (receivers_.empty() || queue_.size() > 1)) {
        auto const position = static_cast<SpillableBuffer::NextUse>(queue_.size());
        entry.parked = ParkedMessage::park(entry.message, position, moves_);
    }
}

}  // namespace rapidsmpf::streaming

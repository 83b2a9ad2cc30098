#include <rapidsmpf/streaming/channel.hpp>

#include <atomic>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

#include "streaming/channel_parts.hpp"

namespace rapidsmpf::streaming {

namespace {
std::uint64_t next_channel_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}
}  // namespace

ChannelCapacity::ChannelCapacity(std::size_t messages, std::size_t bytes)
    : messages_{messages}, bytes_{bytes} {
    RAPIDSMPF_EXPECTS(
        messages > 0, "a channel must have room for at least one message", std::invalid_argument);
}

Channel::Channel(
    std::shared_ptr<Executor> executor, ChannelCapacity capacity, std::shared_ptr<BufferResource> resource)
    : id_{next_channel_id()},
      executor_{std::move(executor)},
      capacity_{capacity},
      resource_{std::move(resource)} {
    RAPIDSMPF_EXPECTS(executor_ != nullptr, "a channel needs an executor", std::invalid_argument);
    if (resource_) {
        moves_ = std::make_shared<Moves>(*this);
        spill_function_ = resource_->spill_manager().add_spill_function(
            [this](std::size_t amount) { return spill(amount); }, spill_priority);
    }
}

Channel::~Channel() {
    if (resource_) {
        moves_->forget();
        resource_->spill_manager().remove_spill_function(spill_function_);
    }
}

void Channel::throw_empty() {
    throw std::invalid_argument{"cannot send an empty message"};
}

bool Channel::send_blocking(Message message) {
    RAPIDSMPF_EXPECTS(!message.empty(), "cannot send an empty message", std::invalid_argument);
    Waiter waiter{Action::send, std::move(message)};
    run_blocking(waiter);
    return waiter.outcome == Outcome::done;
}

std::optional<Message> Channel::receive_blocking() {
    Waiter waiter{Action::receive};
    run_blocking(waiter);
    if (waiter.outcome == Outcome::ended) {
        return std::nullopt;
    }
    return std::move(waiter.message);
}

void Channel::drain_blocking() {
    Waiter waiter{Action::drain};
    run_blocking(waiter);
}

std::optional<Message> Channel::try_receive() {
    WaiterList woken;
    std::optional<Message> message;
    std::exception_ptr error;
    {
        MutexLock lock{mutex_};
        if (error_) {
            std::rethrow_exception(error_);
        }
        if (receivers_.empty() && can_pop(woken)) {
            message.emplace(pop());
            match(woken);
        }
        error = error_;  // reading the message back may have failed
    }
    wake(woken);
    if (error && !message) {
        std::rethrow_exception(error);
    }
    return message;
}

CancellationToken Channel::closed() {
    CancellationToken token;
    std::exception_ptr error;
    {
        MutexLock lock{mutex_};
        if (!closed_) {
            closed_.emplace();
        }
        token = closed_->token();
        if (!error_ && !shut_) {
            return token;
        }
        error = error_;
    }
    cancel_closed(std::move(error));
    return token;
}

void Channel::cancel_closed(std::exception_ptr error) {
    std::optional<CancellationSource> closed;
    {
        MutexLock lock{mutex_};
        closed = closed_;
    }
    if (closed) {
        closed->cancel(
            error ? std::move(error)
                  : std::make_exception_ptr(CancelledError{"nobody receives from the channel"}));
    }
}

Channel& Channel::metadata() {
    std::exception_ptr error;
    bool shut{};
    bool finished{};
    std::shared_ptr<Channel> made;
    {
        MutexLock lock{mutex_};
        if (metadata_) {
            return *metadata_;
        }
        constexpr auto unlimited = ChannelCapacity::unlimited;
        // Without a resource, for there is little of it; with one it would be known to the spill manager, whose lock is taken
        // before those of channels.
        metadata_ = std::make_shared<Channel>(executor_, ChannelCapacity{unlimited});
        made = metadata_;
        error = error_;
        shut = shut_;
        finished = finished_;
    }
    // What happened before it was there.
    if (error) {
        made->cancel(std::move(error));
    } else if (shut) {
        made->shutdown();
    } else if (finished) {
        made->finish();
    }
    return *made;
}

void Channel::finish() {
    WaiterList woken;
    std::shared_ptr<Channel> metadata;
    {
        MutexLock lock{mutex_};
        finished_ = true;
        metadata = metadata_;
        match(woken);
    }
    wake(woken);
    if (metadata) {
        metadata->finish();
    }
}

void Channel::shutdown() {
    WaiterList woken;
    std::optional<EntryList> dropped;  // destroyed after the lock is released
    std::shared_ptr<Channel> metadata;
    {
        UniqueLock lock{mutex_};
        if (shut_ || error_) {
            return;
        }
        shut_ = true;
        metadata = metadata_;
        dropped.emplace(close(lock, Outcome::ended, woken));
    }
    wake(woken);
    if (metadata) {
        metadata->shutdown();
    }
    cancel_closed(nullptr);
}

void Channel::cancel(std::exception_ptr error) {
    RAPIDSMPF_EXPECTS(error != nullptr, "a channel is cancelled with an error", std::invalid_argument);
    WaiterList woken;
    std::optional<EntryList> dropped;
    std::shared_ptr<Channel> metadata;
    {
        UniqueLock lock{mutex_};
        if (error_) {
            if (spilling_ == nullptr) {
                bytes_ = 0;
                dropped.emplace(queue_.take());  // there are some if reading them back has failed
            }
            return;
        }
        error_ = error;
        metadata = metadata_;
        dropped.emplace(close(lock, Outcome::failed, woken));
    }
    wake(woken);
    if (metadata) {
        metadata->cancel(error);
    }
    cancel_closed(std::move(error));
}

std::size_t Channel::size() const {
    MutexLock lock{mutex_};
    return queue_.size();
}

std::size_t Channel::bytes() const {
    MutexLock lock{mutex_};
    return bytes_;
}

void Channel::set_outside_producer() {
    MutexLock const lock{mutex_};
    outside_producer_ = true;
}

void Channel::set_outside_consumer() {
    MutexLock const lock{mutex_};
    outside_consumer_ = true;
}

bool Channel::is_finished() const {
    MutexLock lock{mutex_};
    return finished_;
}

bool Channel::is_closed() const {
    MutexLock lock{mutex_};
    return shut_ || error_ != nullptr;
}

bool Channel::start_or_wait(Waiter& waiter, std::coroutine_handle<> coroutine, detail::ActorPart part) {
    WaiterList woken;
    {
        MutexLock lock{mutex_};
        if (part.activity != nullptr) {
            waiter.use = &use_of(*part.activity, waiter.action);
            waiter.lane = part.lane;
            waiter.begun = trace_ ? NetworkTrace::now() : 0;
        }
        if (!try_start(waiter, woken)) {
            waiter.coroutine = coroutine;
            // From the end of this block on, the coroutine may run and the waiter, even the channel, be gone.
            wake(woken);
            return true;
        }
    }
    wake(woken);
    return false;
}

void Channel::run_blocking(Waiter& waiter) {
    RAPIDSMPF_EXPECTS(
        !executor_->runs_this_thread(),
        "a blocking channel operation would stall a thread of the executor: co_await the other variant",
        std::logic_error);
    ConditionVariable parked;
    WaiterList woken;
    {
        UniqueLock lock{mutex_};
        if (!try_start(waiter, woken)) {
            waiter.parked = &parked;
            wake(woken);
            woken = {};
            parked.wait(lock, [&] { return waiter.outcome != Outcome::pending; });
        }
    }
    wake(woken);
    rethrow(waiter);
}

bool Channel::try_start(Waiter& waiter, WaiterList& woken) {
    if (try_now(waiter, woken)) {
        if (trace_ && waiter.use != nullptr && waiter.outcome != Outcome::done) {
            trace(waiter, nullptr);
        }
        return true;
    }
    begin_wait(waiter);
    return false;
}

bool Channel::try_now(Waiter& waiter, WaiterList& woken) {
    if (error_) {
        waiter.outcome = Outcome::failed;
        waiter.error = error_;
        return true;
    }
    if (shut_) {
        waiter.outcome = Outcome::ended;
        return true;
    }
    switch (waiter.action) {
        case Action::send:
            RAPIDSMPF_EXPECTS(
                !finished_, "send() on a channel whose producers have finished", std::logic_error);
            if (senders_.empty() && has_room(waiter.message)) {
                push(waiter);
                if (!receivers_.empty()) {
                    match(woken);
                }
                return true;
            }
            senders_.push(waiter);
            return false;
        case Action::receive:
            if (receivers_.empty() && can_pop(woken)) {
                pop(waiter);
                if (!senders_.empty() || finished_) {
                    match(woken);
                }
                return true;
            }
            if (error_) {
                waiter.outcome = Outcome::failed;
                waiter.error = error_;
                return true;
            }
            if (finished_ && queue_.empty() && senders_.empty()) {
                waiter.outcome = Outcome::ended;
                return true;
            }
            receivers_.push(waiter);
            return false;
        case Action::drain:
            finished_ = true;
            if (metadata_) {
                metadata_
                    ->finish();  // never the other way round: no lock of a channel is taken under its metadata's
            }
            match(woken);
            if (queue_.empty() && senders_.empty()) {
                waiter.outcome = Outcome::done;
                return true;
            }
            drainers_.push(waiter);
            return false;
    }
    return true;
}

Message Channel::pop() noexcept {
    bytes_ -= queue_.front().bytes;
    return queue_.pop_front();
}

// Lets in what there is room for and hands out what there is, in turn, until neither goes on; then sees
// whether this is the end.
void Channel::match(WaiterList& woken) {
    for (bool moved = true; moved;) {
        moved = false;
        while (!senders_.empty() && has_room(senders_.first->message)) {
            Waiter& sender = senders_.pop();
            push(sender);
            settle(sender, Outcome::done, woken);
            moved = true;
        }
        while (!receivers_.empty() && can_pop(woken)) {
            Waiter& receiver = receivers_.pop();
            pop(receiver);
            settle(receiver, Outcome::done, woken);
            moved = true;
        }
    }
    if (finished_ && queue_.empty() && senders_.empty()) {
        settle_all(receivers_, Outcome::ended, woken);
        settle_all(drainers_, Outcome::done, woken);
    }
}

void Channel::settle(Waiter& waiter, Outcome outcome, WaiterList& woken) noexcept {
    waiter.outcome = outcome;
    if (outcome == Outcome::failed) {
        waiter.error = error_;
    }
    if (waiter.use != nullptr) {
        if (trace_ && (outcome != Outcome::done || waiter.action == Action::drain)) {
            trace(waiter, nullptr);
        }
        end_wait(waiter);
    }
    if (waiter.parked != nullptr) {
        waiter.parked->notify_one();  // under the lock: then its thread is free to destroy the waiter
    } else {
        woken.push(waiter);
    }
}

void Channel::settle_all(WaiterList& list, Outcome outcome, WaiterList& woken) noexcept {
    while (!list.empty()) {
        settle(list.pop(), outcome, woken);
    }
}

Channel::EntryList Channel::close(UniqueLock& lock, Outcome outcome, WaiterList& woken) {
    spilled_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return spilling_ == nullptr; });
    settle_all(senders_, outcome, woken);
    settle_all(receivers_, outcome, woken);
    settle_all(drainers_, outcome, woken);
    restoring_.reset();
    bytes_ = 0;
    return queue_.take();
}

void Channel::wake_all(WaiterList& woken) {
    while (!woken.empty()) {
        // Read all of it first: the coroutine may run and end at once.
        auto const& waiter = woken.pop();
        if (auto const done = waiter.done; done != nullptr) {
            done(waiter.whom);
            continue;
        }
        auto const coroutine = waiter.coroutine;
        executor_->post(coroutine);
    }
}

bool Channel::withdraw(Waiter& waiter) {
    WaiterList woken;
    bool removed = false;
    {
        MutexLock lock{mutex_};
        for (auto* list : {&senders_, &receivers_, &drainers_}) {
            removed = removed || list->remove(waiter);
        }
        if (removed) {
            if (waiter.use != nullptr) {
                if (trace_) {
                    trace(waiter, nullptr);
                }
                end_wait(waiter);
            }
            match(woken);  // a sender with a smaller message may have waited behind it
        }
    }
    wake(woken);
    return removed;
}

void Channel::put_back(Waiter& waiter) {
    WaiterList woken;
    {
        MutexLock lock{mutex_};
        if (shut_ || error_) {
            return;
        }
        discount(waiter);
        bytes_ += queue_.push_front(std::move(waiter.message)).bytes;
        match(woken);
    }
    wake(woken);
}

}  // namespace rapidsmpf::streaming

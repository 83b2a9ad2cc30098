#include <rapidsmpf/streaming/channel.hpp>

#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

#include "streaming/parked_message.hpp"

namespace rapidsmpf::streaming {

ChannelCapacity::ChannelCapacity(std::size_t messages, std::size_t bytes)
    : messages_{messages}, bytes_{bytes} {
    RAPIDSMPF_EXPECTS(
        messages > 0, "a channel must have room for at least one message", std::invalid_argument);
}

void Channel::WaiterList::push(Waiter& waiter) noexcept {
    waiter.next = nullptr;
    (first == nullptr ? first : last->next) = &waiter;
    last = &waiter;
}

Channel::Waiter& Channel::WaiterList::pop() noexcept {
    Waiter& waiter = *first;
    first = waiter.next;
    return waiter;
}

std::size_t Channel::WaiterList::size() const noexcept {
    std::size_t count = 0;
    for (auto const* waiter = first; waiter != nullptr; waiter = waiter->next) {
        ++count;
    }
    return count;
}

bool Channel::WaiterList::remove(Waiter const& waiter) noexcept {
    Waiter* before = nullptr;
    for (auto* each = first; each != nullptr; before = each, each = each->next) {
        if (each == &waiter) {
            (before == nullptr ? first : before->next) = each->next;
            if (last == each) {
                last = before;
            }
            return true;
        }
    }
    return false;
}

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

Channel::Entry::Entry(Message message_) noexcept
    : message{std::move(message_)}, bytes{message.description().total_bytes()} {}
Channel::Entry::~Entry() = default;
Channel::Entry::Entry(Entry&&) noexcept = default;
Channel::Entry& Channel::Entry::operator=(Entry&&) noexcept = default;

Channel::Channel(
    std::shared_ptr<Executor> executor, ChannelCapacity capacity, std::shared_ptr<BufferResource> resource)
    : executor_{std::move(executor)}, capacity_{capacity}, resource_{std::move(resource)} {
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

Channel::SendAwaiter Channel::send(Message message) {
    RAPIDSMPF_EXPECTS(!message.empty(), "cannot send an empty message", std::invalid_argument);
    return SendAwaiter{*this, std::move(message)};
}

Channel::ReceiveAwaiter Channel::receive() {
    return ReceiveAwaiter{*this};
}

Channel::DrainAwaiter Channel::drain() {
    return DrainAwaiter{*this};
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

void Channel::on_moved() {
    WaiterList woken;
    MutexLock lock{mutex_};
    auto const ended = std::exchange(restoring_, std::nullopt);
    match(woken);
    wake(woken);
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
    std::deque<Entry> dropped;  // destroyed after the lock is released
    std::shared_ptr<Channel> metadata;
    {
        UniqueLock lock{mutex_};
        if (shut_ || error_) {
            return;
        }
        shut_ = true;
        metadata = metadata_;
        dropped = close(lock, Outcome::ended, woken);
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
    std::deque<Entry> dropped;
    std::shared_ptr<Channel> metadata;
    {
        UniqueLock lock{mutex_};
        if (error_) {
            if (spilling_ == nullptr) {
                bytes_ = 0;
                dropped = std::exchange(queue_, {});  // there are some if reading them back has failed
            }
            return;
        }
        error_ = error;
        metadata = metadata_;
        dropped = close(lock, Outcome::failed, woken);
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
    state.is_finished = finished_;
    state.is_closed = shut_ || error_ != nullptr;
    state.has_outside_producer = outside_producer_;
    state.has_outside_consumer = outside_consumer_;
    return state;
}

bool Channel::is_finished() const {
    MutexLock lock{mutex_};
    return finished_;
}

bool Channel::is_closed() const {
    MutexLock lock{mutex_};
    return shut_ || error_ != nullptr;
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

bool Channel::start_or_wait(Waiter& waiter, std::coroutine_handle<> coroutine) {
    WaiterList woken;
    {
        MutexLock lock{mutex_};
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

void Channel::rethrow(Waiter& waiter) {
    if (waiter.error) {
        std::rethrow_exception(std::exchange(waiter.error, nullptr));
    }
}

bool Channel::try_start(Waiter& waiter, WaiterList& woken) {
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
                push(std::move(waiter.message));
                waiter.outcome = Outcome::done;
                if (!receivers_.empty()) {
                    match(woken);
                }
                return true;
            }
            senders_.push(waiter);
            return false;
        case Action::receive:
            if (receivers_.empty() && can_pop(woken)) {
                waiter.message = pop();
                waiter.outcome = Outcome::done;
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

bool Channel::has_room(Message const& message) const noexcept {
    if (queue_.empty()) {
        return true;
    }
    auto const size = message.description().total_bytes();
    return queue_.size() < capacity_.messages() && bytes_ <= capacity_.bytes()
           && size <= capacity_.bytes() - bytes_;
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

Message Channel::pop() noexcept {
    auto& front = queue_.front();
    Message message = std::move(front.message);
    bytes_ -= front.bytes;
    queue_.pop_front();
    return message;
}

void Channel::push(Message message) {
    auto& entry = queue_.emplace_back(std::move(message));
    bytes_ += entry.bytes;
    ++sent_;
    sent_bytes_ += entry.bytes;
    // What is handed out at once need not be told of.
    if (resource_ && entry.bytes > 0 && (receivers_.empty() || queue_.size() > 1)) {
        auto const position = static_cast<SpillableBuffer::NextUse>(queue_.size());
        entry.parked = ParkedMessage::park(entry.message, position, moves_);
    }
}

// Lets in what there is room for and hands out what there is, in turn, until neither goes on; then sees
// whether this is the end.
void Channel::match(WaiterList& woken) {
    for (bool moved = true; moved;) {
        moved = false;
        while (!senders_.empty() && has_room(senders_.first->message)) {
            Waiter& sender = senders_.pop();
            push(std::move(sender.message));
            settle(sender, Outcome::done, woken);
            moved = true;
        }
        while (!receivers_.empty() && can_pop(woken)) {
            Waiter& receiver = receivers_.pop();
            receiver.message = pop();
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

std::deque<Channel::Entry> Channel::close(UniqueLock& lock, Outcome outcome, WaiterList& woken) {
    spilled_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return spilling_ == nullptr; });
    settle_all(senders_, outcome, woken);
    settle_all(receivers_, outcome, woken);
    settle_all(drainers_, outcome, woken);
    restoring_.reset();
    bytes_ = 0;
    return std::exchange(queue_, {});
}

void Channel::wake(WaiterList& woken) {
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
            match(woken);  // a sender with a smaller message may have waited behind it
        }
    }
    wake(woken);
    return removed;
}

void Channel::put_back(Message message) {
    WaiterList woken;
    {
        MutexLock lock{mutex_};
        if (shut_ || error_) {
            return;
        }
        bytes_ += queue_.emplace_front(std::move(message)).bytes;
        match(woken);
    }
    wake(woken);
}

Channel::CallbackOperation Channel::CallbackOperation::send(Channel& channel, Message message) {
    RAPIDSMPF_EXPECTS(!message.empty(), "cannot send an empty message", std::invalid_argument);
    return {channel, Waiter{Action::send, std::move(message)}};
}

Channel::CallbackOperation Channel::CallbackOperation::receive(Channel& channel) noexcept {
    return {channel, Waiter{Action::receive}};
}

Channel::CallbackOperation Channel::CallbackOperation::drain(Channel& channel) noexcept {
    return {channel, Waiter{Action::drain}};
}

bool Channel::CallbackOperation::start(Done done, void* whom) {
    waiter_.done = done;
    waiter_.whom = whom;
    return channel_->start_or_wait(waiter_, nullptr);
}

bool Channel::CallbackOperation::withdraw() {
    return channel_->withdraw(waiter_);
}

bool Channel::CallbackOperation::succeeded() {
    rethrow(waiter_);
    return waiter_.outcome == Outcome::done;
}

std::optional<Message> Channel::CallbackOperation::take() {
    rethrow(waiter_);
    if (waiter_.outcome == Outcome::ended) {
        return std::nullopt;
    }
    return std::move(waiter_.message);
}

void Channel::CallbackOperation::put_back() {
    if (waiter_.operation == Operation::receive && waiter_.outcome == Outcome::done
        && !waiter_.message.empty()) {
        channel_->put_back(std::move(waiter_.message));
    }
}

}  // namespace rapidsmpf::streaming

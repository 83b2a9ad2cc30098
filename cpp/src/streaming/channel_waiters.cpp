// Operations of a channel that wait: their queues, and those that call a function when they end.
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/channel.hpp>

#include "streaming/channel_parts.hpp"

namespace rapidsmpf::streaming {

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

Channel::EntryList::EntryList(EntryList&& other) noexcept
    : first_{std::exchange(other.first_, nullptr)},
      last_{std::exchange(other.last_, nullptr)},
      spare_{std::exchange(other.spare_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      num_spare_{std::exchange(other.num_spare_, 0)} {}

Channel::EntryList::~EntryList() {
    for (auto* list : {first_, spare_}) {
        while (list != nullptr) {
            std::unique_ptr<Entry> const dropped{std::exchange(list, list->next)};
        }
    }
}

Channel::Entry& Channel::EntryList::push_front(Message&& message) {
    auto& entry = make(std::move(message));
    entry.next = first_;
    entry.before = nullptr;
    (first_ == nullptr ? last_ : first_->before) = &entry;
    first_ = &entry;
    return entry;
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
    return channel_->start_or_wait(waiter_, nullptr, detail::ActorPart{activity_, nullptr});
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
    if (waiter_.action == Action::receive && waiter_.outcome == Outcome::done && !waiter_.message.empty()) {
        channel_->put_back(waiter_);
        waiter_.message = Message();  // the channel may have been closed
    }
}

}  // namespace rapidsmpf::streaming

#include <rapidsmpf/streaming/spillable_messages.hpp>

#include <coroutine>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "streaming/parked_message.hpp"
#include "streaming/settled_once.hpp"

namespace rapidsmpf::streaming {

// One message, as it is or parked.
class SpillableMessages::Item final : public MoveListener, public std::enable_shared_from_this<Item> {
  public:
    explicit Item(Message message) : message_{std::move(message)} {}

    void park(NextUse next_use) {
        MutexLock const lock{mutex_};
        parked_ = ParkedMessage::park(message_, next_use, weak_from_this());
    }

    // Returns the bytes freed.
    std::size_t pack_below(BufferResource& resource) {
        MutexLock const lock{mutex_};
        if (parked_ || restoring_) {
            return 0;
        }
        auto const bytes = message_.description().total_bytes();
        parked_ = ParkedMessage::pack_below(message_, resource, SpillableBuffer::soon, weak_from_this());
        return parked_ ? bytes : message_.spill();
    }

    // Whether the message is whole; if not, `waiting` is settled when it is worth trying again.
    [[nodiscard]] bool try_restore(std::shared_ptr<SettledOnce> waiting) {
        MutexLock const lock{mutex_};
        restoring_ = true;
        if (!parked_) {
            return true;
        }
        waiting_ = std::move(waiting);
        if (!parked_->try_restore(message_)) {
            return false;
        }
        waiting_ = nullptr;
        parked_ = nullptr;
        return true;
    }

    void moved() noexcept override {
        std::shared_ptr<SettledOnce> waiting;
        {
            MutexLock const lock{mutex_};
            waiting = std::move(waiting_);
        }
        if (waiting) {
            waiting->settle();
        }
    }

    [[nodiscard]] Message take() {
        MutexLock const lock{mutex_};
        return std::move(message_);
    }

    [[nodiscard]] ContentDescription description() const {
        MutexLock const lock{mutex_};
        return parked_ ? ContentDescription{parked_->mem_type(), parked_->size(), Spillable::yes}
                       : message_.description();
    }

  private:
    mutable Mutex mutex_;
    Message message_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::unique_ptr<ParkedMessage> parked_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::shared_ptr<SettledOnce> waiting_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool restoring_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

struct SpillableMessages::State {
    State(std::shared_ptr<Executor> executor_, std::shared_ptr<BufferResource> resource_)
        : executor{std::move(executor_)}, resource{std::move(resource_)} {}

    [[nodiscard]] std::shared_ptr<Item> find(Id id) const {
        MutexLock const lock{mutex};
        return locate(id)->second;
    }
    [[nodiscard]] std::shared_ptr<Item> remove(Id id) {
        MutexLock const lock{mutex};
        auto const found = locate(id);
        auto item = found->second;
        items.erase(found);
        return item;
    }
    [[nodiscard]] std::map<Id, std::shared_ptr<Item>>::const_iterator locate(Id id) const
        RAPIDSMPF_REQUIRES(mutex) {
        auto const found = items.find(id);
        RAPIDSMPF_EXPECTS(
            found != items.end(), "there is no message " + std::to_string(id) + " (any more)",
            std::out_of_range);
        return found;
    }

    std::size_t spill(std::size_t amount) {
        std::vector<std::shared_ptr<Item>> all;
        {
            MutexLock const lock{mutex};
            for (auto const& [id, item] : items) {
                all.push_back(item);
            }
        }
        std::size_t freed = 0;
        for (auto item = all.rbegin(); item != all.rend() && freed < amount; ++item) {
            freed += (*item)->pack_below(*resource);
        }
        return freed;
    }

    std::shared_ptr<Executor> executor;
    std::shared_ptr<BufferResource> resource;
    mutable Mutex mutex;
    std::map<Id, std::shared_ptr<Item>> items RAPIDSMPF_GUARDED_BY(mutex);
    Id next RAPIDSMPF_GUARDED_BY(mutex){0};
};

namespace {

// One try, and the wait until the next is worth it.
template <typename Item>
class RestoreAwaiter {
  public:
    RestoreAwaiter(Executor const& executor, std::shared_ptr<Item> item, CancellationToken cancellation)
        : state_{std::make_shared<SettledOnce>(executor)},
          item_{std::move(item)},
          cancellation_{std::move(cancellation)} {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> coroutine) {
        auto const state = state_;
        state->set_coroutine(coroutine);
        if (item_->try_restore(state)) {
            restored_ = true;
            return false;
        }
        registration_ =
            cancellation_.on_cancel([state](std::exception_ptr error) { state->settle(std::move(error)); });
        return state->suspended();
    }
    // Whether the message is whole.
    [[nodiscard]] bool await_resume() {
        registration_.reset();
        state_->rethrow();
        return restored_;
    }

  private:
    std::shared_ptr<SettledOnce> state_;
    std::shared_ptr<Item> item_;
    CancellationToken cancellation_;
    CancellationToken::Registration registration_;
    bool restored_{false};
};

template <typename Item>
Task<Message> restore(
    std::shared_ptr<Executor> executor, std::shared_ptr<Item> item, CancellationToken cancellation) {
    for (bool restored = false; !restored;) {
        cancellation.throw_if_cancelled();
        RestoreAwaiter<Item> awaiter{*executor, item, cancellation};
        restored = co_await awaiter;
    }
    co_return item->take();
}

}  // namespace

SpillableMessages::SpillableMessages(Context const& context)
    : state_{std::make_shared<State>(context.executor(), context.resource())} {
    spill_function_ = state_->resource->spill_manager().add_spill_function(
        [state = std::weak_ptr<State>{state_}](std::size_t amount) {
            auto const held = state.lock();
            return held ? held->spill(amount) : std::size_t{0};
        },
        Channel::spill_priority);
}

SpillableMessages::~SpillableMessages() {
    state_->resource->spill_manager().remove_spill_function(spill_function_);
}

SpillableMessages::Id SpillableMessages::insert(Message message, NextUse next_use) {
    RAPIDSMPF_EXPECTS(!message.empty(), "cannot keep an empty message", std::invalid_argument);
    auto item = std::make_shared<Item>(std::move(message));
    item->park(next_use);
    MutexLock const lock{state_->mutex};
    auto const id = state_->next++;
    state_->items.emplace(id, std::move(item));
    return id;
}

Task<Message> SpillableMessages::extract(Id id, CancellationToken cancellation) {
    return restore(state_->executor, state_->remove(id), std::move(cancellation));
}

ContentDescription SpillableMessages::description(Id id) const {
    return state_->find(id)->description();
}

std::size_t SpillableMessages::size() const {
    MutexLock const lock{state_->mutex};
    return state_->items.size();
}

std::size_t SpillableMessages::spill(std::size_t amount) {
    return state_->spill(amount);
}

}  // namespace rapidsmpf::streaming

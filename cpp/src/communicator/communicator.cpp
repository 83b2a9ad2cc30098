#include <rapidsmpf/communicator/communicator.hpp>

#include <atomic>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

#include "communicator/split_state.hpp"

namespace rapidsmpf {

Tag::Tag(OpId op, std::uint32_t stage) : value_{(static_cast<std::uint64_t>(op) << stage_bits) | stage} {
    RAPIDSMPF_EXPECTS(
        op >= 0 && op <= max_op_id,
        "operation id " + std::to_string(op) + " is not between 0 and " + std::to_string(max_op_id),
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(stage < (1U << stage_bits), "stage out of range", std::invalid_argument);
}

Tag Tag::in_context(ContextId context) const {
    RAPIDSMPF_EXPECTS(
        context <= max_context && this->context() == 0, "a context out of range", std::invalid_argument);
    Tag tag = *this;
    tag.value_ |= static_cast<std::uint64_t>(context) << (stage_bits + op_bits);
    return tag;
}

struct Communicator::State {
    struct Listener {
        Listener(ListenerId id_, FailureListener call_) : id{id_}, call{std::move(call_)} {}
        ListenerId id;
        FailureListener call;
    };
    Mutex mutex;
    ConditionVariable changed;
    std::optional<RankFailure> failure RAPIDSMPF_GUARDED_BY(mutex);
    std::list<Listener> listeners RAPIDSMPF_GUARDED_BY(mutex);
    ListenerId next_listener RAPIDSMPF_GUARDED_BY(mutex){1};
    ListenerId running RAPIDSMPF_GUARDED_BY(mutex){0};
    std::thread::id running_thread RAPIDSMPF_GUARDED_BY(mutex);
    std::set<OpId> ops RAPIDSMPF_GUARDED_BY(mutex);
    std::set<Rank> left RAPIDSMPF_GUARDED_BY(mutex);
    std::atomic<bool> any_left{false};  // spares idle ticks the lock
    Mutex attached_mutex;               // held while one is made: making may use this object
    std::map<std::type_index, std::shared_ptr<void>> attached RAPIDSMPF_GUARDED_BY(attached_mutex);
    std::shared_ptr<detail::SplitState> split_state RAPIDSMPF_GUARDED_BY(mutex);
};

Communicator::Communicator(config::Options options, std::shared_ptr<ProgressThread> progress_thread)
    : logger_{options},
      options_{std::move(options)},
      progress_thread_{progress_thread ? std::move(progress_thread) : std::make_shared<ProgressThread>()},
      state_{std::make_shared<State>()} {}

std::optional<RankFailure> Communicator::failure() const {
    MutexLock lock{state_->mutex};
    return state_->failure;
}

void Communicator::check() const {
    check_process();
    if (auto const failed = failure()) {
        failed->raise();
    }
}

void Communicator::fail(RankFailure failure) {
    auto const state = state_;
    {
        UniqueLock lock{state->mutex};
        if (state->failure) {
            return;
        }
        state->failure = std::move(failure);
        // One at a time and outside the lock, so that listeners may use this object; each is called once
        // because it leaves the list first.
        auto const& known = *state->failure;  // stays what it is
        while (!state->listeners.empty()) {
            auto listener = std::move(state->listeners.front());
            state->listeners.pop_front();
            state->running = listener.id;
            state->running_thread = std::this_thread::get_id();
            lock.unlock();
            listener.call(known);
            lock.lock();
            state->running = 0;
            state->changed.notify_all();
        }
    }
    progress_thread_->wake();
}

void Communicator::abort(std::string const& reason) {
    fail(RankFailure{rank(), "", 0, reason});
}

void Communicator::report_protocol_violation(Rank culprit, std::string const& reason) {
    fail(RankFailure{culprit < 0 ? rank() : culprit, "", 0, reason});
}

Communicator::ListenerId Communicator::add_failure_listener(FailureListener listener) {
    UniqueLock lock{state_->mutex};
    auto const id = state_->next_listener++;
    if (state_->failure) {
        auto const& known = *state_->failure;  // stays what it is
        lock.unlock();
        listener(known);
        return id;
    }
    state_->listeners.emplace_back(id, std::move(listener));
    return id;
}

void Communicator::remove_failure_listener(ListenerId id) {
    UniqueLock lock{state_->mutex};
    state_->listeners.remove_if([&](State::Listener const& listener) { return listener.id == id; });
    if (state_->running == id && state_->running_thread == std::this_thread::get_id()) {
        return;  // it removes itself
    }
    state_->changed.wait(lock, [&]() RAPIDSMPF_REQUIRES(state_->mutex) { return state_->running != id; });
}

std::shared_ptr<void> Communicator::attached(
    std::type_index type, std::function<std::shared_ptr<void>()> const& make) {
    MutexLock lock{state_->attached_mutex};
    auto const found = state_->attached.find(type);
    return found != state_->attached.end() ? found->second
                                           : state_->attached.emplace(type, make()).first->second;
}

void Communicator::retire() noexcept {
    std::map<std::type_index, std::shared_ptr<void>> attached;  // destroyed without the lock
    MutexLock lock{state_->attached_mutex};
    attached.swap(state_->attached);
}

bool Communicator::has_closed(Rank rank) const {
    if (!state_->any_left.load(std::memory_order_acquire)) {
        return false;
    }
    MutexLock lock{state_->mutex};
    return state_->left.contains(rank);
}

std::optional<Rank> Communicator::first_closed() const {
    MutexLock lock{state_->mutex};
    return state_->left.empty() ? std::nullopt : std::optional{*state_->left.begin()};
}

void Communicator::note_closed(Rank rank) {
    {
        MutexLock lock{state_->mutex};
        state_->left.insert(rank);
        state_->any_left.store(true, std::memory_order_release);
    }
    progress_thread_->wake();
}

void Communicator::claim_op(OpId op) {
    MutexLock lock{state_->mutex};
    RAPIDSMPF_EXPECTS(
        state_->ops.insert(op).second,
        "operation id " + std::to_string(op) + " is in use by another collective of this communicator",
        std::invalid_argument);
}

std::shared_ptr<detail::SplitState> Communicator::split_state() {
    MutexLock lock{state_->mutex};
    if (!state_->split_state) {
        state_->split_state = std::make_shared<detail::SplitState>();
    }
    return state_->split_state;
}

void Communicator::release_op(OpId op) noexcept {
    MutexLock lock{state_->mutex};
    state_->ops.erase(op);
}

}  // namespace rapidsmpf

#include <rapidsmpf/streaming/synchronisation.hpp>

#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

namespace detail {

void ParkedList::push(Parked& parked) noexcept {
    parked.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &parked;
    last_ = &parked;
    ++size_;
}

Parked& ParkedList::pop() noexcept {
    Parked& parked = *first_;
    first_ = parked.next;
    --size_;
    return parked;
}

void ParkedList::resume(Executor& executor, std::exception_ptr const& error) {
    while (!empty()) {
        // Read all of it first: the coroutine may run and end at once.
        Parked& parked = pop();
        parked.error = error;
        executor.post(parked.coroutine);
    }
}

}  // namespace detail

struct AsyncSemaphore::State {
    State(std::shared_ptr<Executor> executor_, std::size_t permits_)
        : executor{std::move(executor_)}, permits{permits_} {}
    std::shared_ptr<Executor> executor;
    Mutex mutex;
    std::size_t permits RAPIDSMPF_GUARDED_BY(mutex);
    std::exception_ptr error RAPIDSMPF_GUARDED_BY(mutex);
    detail::ParkedList waiting RAPIDSMPF_GUARDED_BY(mutex);
};

AsyncSemaphore::AsyncSemaphore(std::shared_ptr<Executor> executor, std::size_t permits)
    : state_{std::make_shared<State>(std::move(executor), permits)} {
    RAPIDSMPF_EXPECTS(permits > 0, "a semaphore needs at least one permit", std::invalid_argument);
    RAPIDSMPF_EXPECTS(state_->executor != nullptr, "a semaphore needs an executor", std::invalid_argument);
}

AsyncSemaphore::Permit& AsyncSemaphore::Permit::operator=(Permit&& other) noexcept {
    if (this != &other) {
        release();
        state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
}

void AsyncSemaphore::Permit::release() noexcept {
    auto const state = std::exchange(state_, nullptr);
    if (!state) {
        return;
    }
    std::coroutine_handle<> next;
    {
        MutexLock const lock{state->mutex};
        if (state->waiting.empty()) {
            ++state->permits;
        } else {
            next = state->waiting.pop().coroutine;  // the permit is its
        }
    }
    if (next) {
        state->executor->post(next);
    }
}

bool AsyncSemaphore::AcquireAwaiter::suspend(std::coroutine_handle<> coroutine) {
    auto const kept = state_;  // the awaiter may be gone when the lock is let go
    auto& state = *kept;
    MutexLock const lock{state.mutex};
    if (state.error) {
        parked_.error = state.error;
        return false;
    }
    if (state.permits > 0) {
        --state.permits;
        return false;
    }
    parked_.coroutine = coroutine;
    state.waiting.push(parked_);
    return true;
}

AsyncSemaphore::Permit AsyncSemaphore::AcquireAwaiter::await_resume() {
    if (parked_.error) {
        std::rethrow_exception(std::exchange(parked_.error, nullptr));
    }
    return Permit{std::move(state_)};
}

std::optional<AsyncSemaphore::Permit> AsyncSemaphore::try_acquire() {
    MutexLock const lock{state_->mutex};
    if (state_->error) {
        std::rethrow_exception(state_->error);
    }
    if (state_->permits == 0) {
        return std::nullopt;
    }
    --state_->permits;
    return Permit{state_};
}

void AsyncSemaphore::cancel(std::exception_ptr error) {
    RAPIDSMPF_EXPECTS(error != nullptr, "a semaphore is cancelled with an error", std::invalid_argument);
    detail::ParkedList woken;
    {
        MutexLock const lock{state_->mutex};
        if (state_->error) {
            return;
        }
        state_->error = error;
        woken = state_->waiting.take();
    }
    woken.resume(*state_->executor, error);
}

std::size_t AsyncSemaphore::available() const {
    MutexLock const lock{state_->mutex};
    return state_->permits;
}

std::size_t AsyncSemaphore::waiting() const {
    MutexLock const lock{state_->mutex};
    return state_->waiting.size();
}

bool AsyncEvent::suspend(detail::Parked& parked, std::coroutine_handle<> coroutine) {
    MutexLock const lock{mutex_};
    if (set_ || error_) {
        parked.error = error_;
        return false;
    }
    parked.coroutine = coroutine;
    waiting_.push(parked);
    return true;
}

void AsyncEvent::set() {
    detail::ParkedList woken;
    auto const executor = executor_;  // the event may go with the last of those who wait
    {
        MutexLock const lock{mutex_};
        set_ = true;
        woken = waiting_.take();
    }
    woken.resume(*executor);
}

void AsyncEvent::reset() {
    MutexLock const lock{mutex_};
    set_ = false;
}

bool AsyncEvent::is_set() const {
    MutexLock const lock{mutex_};
    return set_;
}

void AsyncEvent::cancel(std::exception_ptr error) {
    RAPIDSMPF_EXPECTS(error != nullptr, "an event is cancelled with an error", std::invalid_argument);
    detail::ParkedList woken;
    auto const executor = executor_;
    {
        MutexLock const lock{mutex_};
        if (error_) {
            return;
        }
        error_ = error;
        woken = waiting_.take();
    }
    woken.resume(*executor, error);
}

}  // namespace rapidsmpf::streaming

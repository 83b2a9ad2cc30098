#include <rapidsmpf/streaming/synchronisation.hpp>

#include <atomic>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

namespace detail {

namespace {
std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}
}  // namespace

ParkingPlace::ParkingPlace(std::shared_ptr<Executor> executor) : executor_{std::move(executor)} {
    RAPIDSMPF_EXPECTS(
        executor_ != nullptr, "a semaphore, mutex or event needs an executor", std::invalid_argument);
}

bool ParkingPlace::park(Parked& parked, std::coroutine_handle<> coroutine, ActorPart part, WaitKind kind) {
    parked.error = error_;
    if (!parked.error && part.activity != nullptr) {
        parked.id = next_id();
        parked.error = parked.wait.begin(
            part.activity, kind, [self = shared_from_this(), id = parked.id](std::exception_ptr error) {
                self->cancel_one(id, std::move(error));
            });
    }
    if (parked.error) {
        return false;
    }
    parked.coroutine = coroutine;
    parked.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &parked;
    last_ = &parked;
    ++size_;
    return true;
}

Parked& ParkingPlace::pop() {
    Parked& parked = *first_;
    first_ = parked.next;
    --size_;
    return parked;
}

// The coroutines that are resumed run on threads of the executor, and may wait for the lock there.

bool ParkingPlace::resume_one() {
    if (first_ == nullptr) {
        return false;
    }
    executor_->post(pop().coroutine);
    return true;
}

void ParkingPlace::resume_all() {
    while (resume_one()) {
    }
}

void ParkingPlace::cancel(std::exception_ptr error) {
    MutexLock const lock{mutex_};
    if (error_) {
        return;
    }
    error_ = std::move(error);
    for (auto* each = first_; each != nullptr; each = each->next) {
        each->error = error_;
    }
    resume_all();
}

void ParkingPlace::cancel_one(std::uint64_t id, std::exception_ptr error) {
    MutexLock const lock{mutex_};
    Parked* before = nullptr;
    for (auto* each = first_; each != nullptr; before = each, each = each->next) {
        if (each->id == id) {
            (before == nullptr ? first_ : before->next) = each->next;
            if (last_ == each) {
                last_ = before;
            }
            --size_;
            each->error = std::move(error);
            executor_->post(each->coroutine);
            return;
        }
    }
}

}  // namespace detail

struct AsyncSemaphore::State {
    State(std::shared_ptr<Executor> executor, std::size_t permits_)
        : place{std::make_shared<detail::ParkingPlace>(std::move(executor))}, permits{permits_} {}
    std::shared_ptr<detail::ParkingPlace> const place;
    std::size_t permits;  // guarded by the mutex of the place
};

AsyncSemaphore::AsyncSemaphore(std::shared_ptr<Executor> executor, std::size_t permits)
    : state_{std::make_shared<State>(std::move(executor), permits)} {
    RAPIDSMPF_EXPECTS(permits > 0, "a semaphore needs at least one permit", std::invalid_argument);
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
    MutexLock const lock{state->place->mutex()};
    if (!state->place->resume_one()) {  // else the permit is its
        ++state->permits;
    }
}

bool AsyncSemaphore::AcquireAwaiter::suspend(std::coroutine_handle<> coroutine, detail::ActorPart part) {
    auto const kept = state_;  // the awaiter may be gone when the lock is let go
    auto& state = *kept;
    MutexLock const lock{state.place->mutex()};
    if (!state.place->error() && state.permits > 0) {
        --state.permits;
        return false;
    }
    return state.place->park(parked_, coroutine, part, kind_);
}

AsyncSemaphore::Permit AsyncSemaphore::AcquireAwaiter::await_resume() {
    parked_.wait.end();
    if (parked_.error) {
        std::rethrow_exception(std::exchange(parked_.error, nullptr));
    }
    return Permit{std::move(state_)};
}

std::optional<AsyncSemaphore::Permit> AsyncSemaphore::try_acquire() {
    MutexLock const lock{state_->place->mutex()};
    if (auto const& error = state_->place->error()) {
        std::rethrow_exception(error);
    }
    if (state_->permits == 0) {
        return std::nullopt;
    }
    --state_->permits;
    return Permit{state_};
}

void AsyncSemaphore::cancel(std::exception_ptr error) {
    RAPIDSMPF_EXPECTS(error != nullptr, "a semaphore is cancelled with an error", std::invalid_argument);
    state_->place->cancel(std::move(error));
}

std::size_t AsyncSemaphore::available() const {
    MutexLock const lock{state_->place->mutex()};
    return state_->permits;
}

std::size_t AsyncSemaphore::waiting() const {
    MutexLock const lock{state_->place->mutex()};
    return state_->place->size();
}

struct AsyncEvent::State {
    explicit State(std::shared_ptr<Executor> executor)
        : place{std::make_shared<detail::ParkingPlace>(std::move(executor))} {}
    std::shared_ptr<detail::ParkingPlace> const place;
    bool set{false};  // guarded by the mutex of the place
};

AsyncEvent::AsyncEvent(std::shared_ptr<Executor> executor)
    : state_{std::make_shared<State>(std::move(executor))} {}

bool AsyncEvent::WaitAwaiter::suspend(std::coroutine_handle<> coroutine, detail::ActorPart part) {
    auto const kept = state_;  // as above
    MutexLock const lock{kept->place->mutex()};
    if (kept->set && !kept->place->error()) {
        return false;
    }
    return kept->place->park(parked_, coroutine, part, detail::WaitKind::event);
}

void AsyncEvent::WaitAwaiter::await_resume() {
    parked_.wait.end();
    if (parked_.error) {
        std::rethrow_exception(std::exchange(parked_.error, nullptr));
    }
}

void AsyncEvent::set() {
    auto const state = state_;  // the event may go with the last of those who wait
    MutexLock const lock{state->place->mutex()};
    state->set = true;
    state->place->resume_all();
}

void AsyncEvent::reset() {
    MutexLock const lock{state_->place->mutex()};
    state_->set = false;
}

bool AsyncEvent::is_set() const {
    MutexLock const lock{state_->place->mutex()};
    return state_->set;
}

void AsyncEvent::cancel(std::exception_ptr error) {
    RAPIDSMPF_EXPECTS(error != nullptr, "an event is cancelled with an error", std::invalid_argument);
    auto const state = state_;
    state->place->cancel(std::move(error));
}

}  // namespace rapidsmpf::streaming

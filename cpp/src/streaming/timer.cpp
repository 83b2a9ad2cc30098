#include <coroutine>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>

#include "streaming/settled_once.hpp"
#include "streaming/timers.hpp"

namespace rapidsmpf::streaming {

Timers::Id Timers::add(Clock::time_point time, Alarm alarm) {
    MutexLock const lock{mutex_};
    RAPIDSMPF_EXPECTS(!stop_, "the executor has been shut down", std::logic_error);
    if (!thread_.joinable()) {
        thread_ = std::thread{[self = shared_from_this()] { self->watch(); }};
    }
    Id id{time, ++added_};
    auto const position = alarms_.emplace(id, std::move(alarm)).first;
    if (position == alarms_.begin()) {
        changed_.notify_one();
    }
    return id;
}

void Timers::remove(Id const& id) noexcept {
    Alarm dropped;  // what it owns goes without the lock
    MutexLock const lock{mutex_};
    if (auto const found = alarms_.find(id); found != alarms_.end()) {
        dropped.swap(found->second);
        alarms_.erase(found);
    }
}

void Timers::stop() noexcept {
    std::map<Id, Alarm> dropped;
    std::thread thread;
    {
        MutexLock const lock{mutex_};
        stop_ = true;
        dropped.swap(alarms_);
        thread.swap(thread_);
        changed_.notify_one();
    }
    if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
    } else if (thread.joinable()) {
        thread.join();
    }
}

void Timers::watch() {
    UniqueLock lock{mutex_};
    while (!stop_) {
        if (alarms_.empty()) {
            changed_.wait(lock);
            continue;
        }
        auto const first = alarms_.begin();
        if (auto const time = first->first.first; Clock::now() < time) {
            changed_.wait_until(lock, time);
            continue;
        }
        auto alarm = std::move(first->second);
        alarms_.erase(first);
        lock.unlock();
        alarm();
        alarm = nullptr;
        lock.lock();
    }
}

namespace {

class SleepAwaiter {
  public:
    SleepAwaiter(
        std::shared_ptr<Executor> executor, Timers::Clock::time_point time, CancellationToken cancellation)
        : executor_{std::move(executor)},
          state_{std::make_shared<SettledOnce>(*executor_)},
          time_{time},
          cancellation_{std::move(cancellation)} {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
        auto const state = state_;
        state->set_coroutine(coroutine);
        if (auto error = wait_of_actor_.begin(
                detail::actor_part_of(coroutine).activity, detail::WaitKind::time, state->canceller())) {
            state->settle(std::move(error));
            return state->suspended();
        }
        id_ = executor_->timers().add(time_, [state] { state->settle(); });
        registration_ =
            cancellation_.on_cancel([state](std::exception_ptr error) { state->settle(std::move(error)); });
        return state->suspended();
    }
    void await_resume() {
        registration_.reset();
        wait_of_actor_.end();
        if (id_) {
            executor_->timers().remove(*id_);
        }
        state_->rethrow();
    }

  private:
    std::shared_ptr<Executor> executor_;
    std::shared_ptr<SettledOnce> state_;
    Timers::Clock::time_point time_;
    CancellationToken cancellation_;
    std::optional<Timers::Id> id_;
    CancellationToken::Registration registration_;
    detail::ActivityWait wait_of_actor_;
};

}  // namespace

Task<void> sleep_until(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::time_point time,
    CancellationToken cancellation) {
    cancellation.throw_if_cancelled();
    SleepAwaiter awaiter{std::move(executor), time, std::move(cancellation)};
    co_await awaiter;
}

Task<void> sleep_for(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::duration time,
    CancellationToken cancellation) {
    return sleep_until(std::move(executor), std::chrono::steady_clock::now() + time, std::move(cancellation));
}

}  // namespace rapidsmpf::streaming

// What coroutines wait for besides channels: a semaphore, a mutex, an event, and time.
//
// They block no thread: who has to wait is suspended, and goes on, first come first served, on a thread of the executor.
// cancel(error) ends every wait, pending and later, by throwing it. All methods are thread-safe; the object must outlive
// every wait on it.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

namespace detail {

// A suspended coroutine, in its own frame.
struct Parked {
    std::coroutine_handle<> coroutine;
    Parked* next{nullptr};
    std::exception_ptr error;  // to throw when it goes on
};

// First in, first out; owns nothing.
class ParkedList {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    void push(Parked& parked) noexcept;
    [[nodiscard]] Parked& pop() noexcept;
    // All of them.
    [[nodiscard]] ParkedList take() noexcept { return std::exchange(*this, ParkedList()); }
    // Has all of them go on; `error` may be null.
    void resume(Executor& executor, std::exception_ptr const& error = nullptr);

  private:
    Parked* first_{nullptr};
    Parked* last_{nullptr};
    std::size_t size_{0};
};

}  // namespace detail

class AsyncSemaphore {
    struct State;

  public:
    // One of the permits; its destructor releases it. Move-only.
    class Permit {
      public:
        Permit() noexcept = default;
        Permit(Permit&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
        Permit& operator=(Permit&& other) noexcept;
        Permit(Permit const&) = delete;
        Permit& operator=(Permit const&) = delete;
        ~Permit() { release(); }
        [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
        void release() noexcept;

      private:
        friend class AsyncSemaphore;
        explicit Permit(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
        std::shared_ptr<State> state_;
    };

    // Throws std::invalid_argument when there are no permits.
    AsyncSemaphore(std::shared_ptr<Executor> executor, std::size_t permits);

    class AcquireAwaiter {
      public:
        explicit AcquireAwaiter(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> coroutine) { return suspend(coroutine); }
        [[nodiscard]] Permit await_resume();

      private:
        [[nodiscard]] bool suspend(std::coroutine_handle<> coroutine);
        std::shared_ptr<State> state_;
        detail::Parked parked_;
    };

    // co_await acquire(): a Permit. Throws what cancel() was given.
    [[nodiscard]] AcquireAwaiter acquire() { return AcquireAwaiter{state_}; }
    // Nothing when there is none now, or others wait for it.
    [[nodiscard]] std::optional<Permit> try_acquire();
    void cancel(std::exception_ptr error);

    [[nodiscard]] std::size_t available() const;
    // Coroutines that wait.
    [[nodiscard]] std::size_t waiting() const;

  private:
    std::shared_ptr<State> state_;
};

// co_await lock() gives a guard that unlocks in the end.
class AsyncMutex {
  public:
    using Guard = AsyncSemaphore::Permit;

    explicit AsyncMutex(std::shared_ptr<Executor> executor) : semaphore_{std::move(executor), 1} {}
    [[nodiscard]] AsyncSemaphore::AcquireAwaiter lock() { return semaphore_.acquire(); }
    [[nodiscard]] std::optional<Guard> try_lock() { return semaphore_.try_acquire(); }
    void cancel(std::exception_ptr error) { semaphore_.cancel(std::move(error)); }

  private:
    AsyncSemaphore semaphore_;
};

// Something that has happened, or not yet.
class AsyncEvent {
  public:
    explicit AsyncEvent(std::shared_ptr<Executor> executor) : executor_{std::move(executor)} {}

    class WaitAwaiter {
      public:
        explicit WaitAwaiter(AsyncEvent& event) noexcept : event_{&event} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> coroutine) {
            return event_->suspend(parked_, coroutine);
        }
        void await_resume() {
            if (parked_.error) {
                std::rethrow_exception(std::exchange(parked_.error, nullptr));
            }
        }

      private:
        AsyncEvent* event_;
        detail::Parked parked_;
    };

    // co_await wait(): until it is set. Throws what cancel() was given.
    [[nodiscard]] WaitAwaiter wait() noexcept { return WaitAwaiter{*this}; }
    void set();
    void reset();
    [[nodiscard]] bool is_set() const;
    void cancel(std::exception_ptr error);

  private:
    [[nodiscard]] bool suspend(detail::Parked& parked, std::coroutine_handle<> coroutine);

    std::shared_ptr<Executor> executor_;
    mutable Mutex mutex_;
    bool set_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    detail::ParkedList waiting_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// Letting time pass without keeping a thread:
//
//     co_await sleep_for(executor, std::chrono::seconds{1});
//
// One thread of the executor, started when it is first needed, watches the clock for all sleepers; they resume on its coroutine
// threads.
// co_await: until the time has passed, never less. Throws what the token was cancelled with, as soon as that happens.
[[nodiscard]] Task<void> sleep_until(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::time_point time,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<void> sleep_for(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::duration time,
    CancellationToken cancellation = CancellationToken());

}  // namespace rapidsmpf::streaming

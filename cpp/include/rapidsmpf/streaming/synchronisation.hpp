// What coroutines wait for besides channels: a semaphore, a mutex, an event, and time.
//
// They block no thread: who has to wait is suspended, and goes on, first come first served, on a thread of the executor.
// cancel(error) ends every wait, pending and later, by throwing it. When a network fails, the waits of its actors end with its
// error, as their waits for channels do. All methods are thread-safe.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
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
    std::uint64_t id{0};       // of this process, never used again
    ActivityWait wait;         // of its actor
};

// Those that wait for one thing, first in, first out; owns none of them. Shared by the thing and those who wait.
class ParkingPlace : public std::enable_shared_from_this<ParkingPlace> {
  public:
    explicit ParkingPlace(std::shared_ptr<Executor> executor);
    [[nodiscard]] Mutex& mutex() noexcept RAPIDSMPF_RETURN_CAPABILITY(mutex_) { return mutex_; }

    // Has it wait, unless there is an error, which it gets. Whether it has to.
    [[nodiscard]] bool park(Parked& parked, std::coroutine_handle<> coroutine, ActorPart part, WaitKind kind)
        RAPIDSMPF_REQUIRES(mutex_);
    // The first goes on; false: no coroutine waits. May throw what Executor::post() does.
    [[nodiscard]] bool resume_one() RAPIDSMPF_REQUIRES(mutex_);
    void resume_all() RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] std::size_t size() const RAPIDSMPF_REQUIRES(mutex_) { return size_; }
    [[nodiscard]] std::exception_ptr const& error() const RAPIDSMPF_REQUIRES(mutex_) { return error_; }
    // All of them, and those to come, get an error. Only the first counts.
    void cancel(std::exception_ptr error);

  private:
    // The wait of that id, if it has not ended, ends with an error.
    void cancel_one(std::uint64_t id, std::exception_ptr error);
    [[nodiscard]] Parked& pop() RAPIDSMPF_REQUIRES(mutex_);

    std::shared_ptr<Executor> executor_;
    mutable Mutex mutex_;
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    Parked* first_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    Parked* last_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    std::size_t size_ RAPIDSMPF_GUARDED_BY(mutex_){0};
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
        AcquireAwaiter(std::shared_ptr<State> state, detail::WaitKind kind) noexcept
            : state_{std::move(state)}, kind_{kind} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
            return suspend(coroutine, detail::actor_part_of(coroutine));
        }
        [[nodiscard]] Permit await_resume();

      private:
        [[nodiscard]] bool suspend(std::coroutine_handle<> coroutine, detail::ActorPart part);
        std::shared_ptr<State> state_;
        detail::WaitKind kind_;
        detail::Parked parked_;
    };

    // co_await acquire(): a Permit. Throws what cancel() was given.
    [[nodiscard]] AcquireAwaiter acquire() { return acquire_for(detail::WaitKind::permit); }
    // For this repository: what the wait is called.
    [[nodiscard]] AcquireAwaiter acquire_for(detail::WaitKind kind) { return AcquireAwaiter{state_, kind}; }
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
    [[nodiscard]] AsyncSemaphore::AcquireAwaiter lock() {
        return semaphore_.acquire_for(detail::WaitKind::mutex);
    }
    [[nodiscard]] std::optional<Guard> try_lock() { return semaphore_.try_acquire(); }
    void cancel(std::exception_ptr error) { semaphore_.cancel(std::move(error)); }

  private:
    AsyncSemaphore semaphore_;
};

// Something that has happened, or not yet. Who sets it from a thread of their own, for actors that wait for it, holds an
// Executor::OutsideWait until then.
class AsyncEvent {
    struct State;

  public:
    explicit AsyncEvent(std::shared_ptr<Executor> executor);

    class WaitAwaiter {
      public:
        explicit WaitAwaiter(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
            return suspend(coroutine, detail::actor_part_of(coroutine));
        }
        void await_resume();

      private:
        [[nodiscard]] bool suspend(std::coroutine_handle<> coroutine, detail::ActorPart part);
        std::shared_ptr<State> state_;
        detail::Parked parked_;
    };

    // co_await wait(): until it is set. Throws what cancel() was given.
    [[nodiscard]] WaitAwaiter wait() noexcept { return WaitAwaiter{state_}; }
    void set();
    void reset();
    [[nodiscard]] bool is_set() const;
    void cancel(std::exception_ptr error);

  private:
    std::shared_ptr<State> state_;
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

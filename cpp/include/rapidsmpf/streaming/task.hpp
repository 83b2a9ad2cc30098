// Task<T>: a lazy coroutine that one other coroutine awaits; it owns its frame.
//
//     Task<int> answer() { co_return 42; }
//     Task<void> caller() { int x = co_await answer(); ... }
//
// A task runs on the thread that awaits it until it first suspends, and continues on the thread that resumes it.
// It resumes its awaiter, on that thread. Destroying a task that has started and not finished is
// allowed only if nothing will resume it any more.
//
// The tasks of an actor (actor.hpp) know whose they are: a task that is awaited by one of them is, too. What suspends a task
// accounts for the wait by that.
//
// Stack safety: symmetric transfer overflows the stack without optimisation on g++ 12, so awaiting starts the
// task inside await_suspend and an atomic flag says which came second: the end of the task or the suspension of
// its awaiter. The awaiter is resumed by the second. See CONTRIBUTING for the rules that keep g++ 12 from miscompiling coroutines.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace rapidsmpf::streaming {

class Activity;

template <typename T = void>
class Task;

namespace detail {

// Whose task something is: an actor's account, and which of its parts that run beside each other. The network owns the account.
struct ActorPart {
    Activity* activity{nullptr};  // null: of no actor
    void const* lane{nullptr};
};

// What the promises of all tasks share.
class TaskPromiseBase {
  public:
    struct FinalAwaiter {
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        // Out of line: some compilers put what is inlined here into the frame, which the awaiting coroutine
        // may destroy on another thread before this returns.
        template <typename Promise>
        [[gnu::noinline]] void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
            auto& promise = handle.promise();
            if (promise.second_.exchange(true, std::memory_order_acq_rel)) {
                promise.continuation_.resume();
            }
        }
        void await_resume() const noexcept {}
    };

    [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
    [[nodiscard]] FinalAwaiter final_suspend() const noexcept { return {}; }
    void unhandled_exception() noexcept { error_ = std::current_exception(); }

    [[nodiscard]] ActorPart const& actor_part() const noexcept { return part_; }
    void set_actor_part(ActorPart part) noexcept { part_ = part; }

  protected:
    void rethrow() {
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

  private:
    template <typename>
    friend class rapidsmpf::streaming::Task;

    std::coroutine_handle<> continuation_;
    std::atomic<bool> second_{false};  // set by the first of: the task ended, its awaiter is suspended
    std::exception_ptr error_;
    ActorPart part_;
};

// Of whatever coroutine is suspended; of no actor if that is no task.
template <typename Promise>
[[nodiscard]] ActorPart actor_part_of(std::coroutine_handle<Promise> handle) noexcept {
    if constexpr (std::is_base_of_v<TaskPromiseBase, Promise>) {
        return handle.promise().actor_part();
    } else {
        return {};
    }
}

// Gives the part of an actor that the awaiting coroutine belongs to, and never suspends:
//     CurrentPart current;
//     auto const part = co_await current;
class CurrentPart {
  public:
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
        part_ = actor_part_of(handle);
        return false;
    }
    [[nodiscard]] ActorPart await_resume() const noexcept { return part_; }

  private:
    ActorPart part_;
};

// So many more tasks of an actor run beside each other. It may be null.
void add_parts(Activity* activity, std::ptrdiff_t parts);

// What actors wait for besides channels.
enum class WaitKind : std::uint8_t { memory, ranks, time, ticket, permit, mutex, event };

// In words, as what "waits for" is followed by.
[[nodiscard]] std::string name_of(WaitKind kind);

// A wait of an actor, in its awaiter: on the actor's account, and ended when its network fails. Nothing happens without an actor.
class ActivityWait {
  public:
    ActivityWait() noexcept = default;
    ActivityWait(ActivityWait const&) = delete;
    ActivityWait& operator=(ActivityWait const&) = delete;
    ~ActivityWait() { end(); }
    // Returns the error with which the network has failed already: then nothing begins, and there must be no wait. If it fails
    // later, `cancel` is called with the error, on any thread, at most once, possibly when the wait has just ended. Until this
    // returns the caller may hold a lock that `cancel` takes.
    [[nodiscard]] std::exception_ptr begin(
        Activity* activity, WaitKind kind, std::function<void(std::exception_ptr)> cancel);
    // Once, at most. Without such a lock.
    void end();

  private:
    Activity* activity_{nullptr};
    WaitKind kind_{};
    std::uint64_t id_{0};
    std::int64_t begun_{0};
    std::int64_t begun_exactly_{0};
};

template <typename T>
class TaskPromise final : public TaskPromiseBase {
  public:
    Task<T> get_return_object() noexcept;
    template <typename U>
        requires std::is_constructible_v<T, U&&>
    void return_value(U&& value) {
        value_.emplace(std::forward<U>(value));
    }
    [[nodiscard]] T take() {
        rethrow();
        return std::move(*value_);
    }

  private:
    std::optional<T> value_;
};

template <>
class TaskPromise<void> final : public TaskPromiseBase {
  public:
    Task<void> get_return_object() noexcept;
    void return_void() const noexcept {}
    void take() { rethrow(); }
};

// A coroutine that is not awaited: runs at once and frees itself. It must not let an exception out.
struct Detached {
    struct promise_type {
        [[nodiscard]] Detached get_return_object() const noexcept { return {}; }
        [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
        [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };
};

}  // namespace detail

template <typename T>
class [[nodiscard]] Task {
  public:
    using promise_type = detail::TaskPromise<T>;
    using value_type = T;

    Task() noexcept = default;
    explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_{handle} {}
    Task(Task&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
    Task& operator=(Task&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    Task(Task const&) = delete;
    Task& operator=(Task const&) = delete;
    ~Task() { reset(); }

    // Whether there is a coroutine; false after a move.
    [[nodiscard]] bool valid() const noexcept { return handle_ != nullptr; }

    class Awaiter {
      public:
        explicit Awaiter(std::coroutine_handle<promise_type> handle) noexcept : handle_{handle} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> continuation) noexcept {
            auto& promise = handle_.promise();
            // A task that has a part keeps it: the actors of a network that an actor's task runs.
            if (promise.actor_part().activity == nullptr) {
                promise.set_actor_part(detail::actor_part_of(continuation));
            }
            promise.continuation_ = continuation;
            handle_.resume();
            return !promise.second_.exchange(true, std::memory_order_acq_rel);
        }
        T await_resume() { return handle_.promise().take(); }

      private:
        std::coroutine_handle<promise_type> handle_;
    };

    // For this repository: sets the part of an actor that this task belongs to, whichever task awaits it. Before the task runs.
    void set_actor_part(detail::ActorPart part) noexcept { handle_.promise().set_actor_part(part); }

    // Runs the task; at most once.
    Awaiter operator co_await() & noexcept { return Awaiter{handle_}; }
    Awaiter operator co_await() && noexcept { return Awaiter{handle_}; }

  private:
    void reset() noexcept {
        if (handle_) {
            std::exchange(handle_, nullptr).destroy();
        }
    }

    std::coroutine_handle<promise_type> handle_;
};

namespace detail {
template <typename T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
    return Task<T>{std::coroutine_handle<TaskPromise<T>>::from_promise(*this)};
}
inline Task<void> TaskPromise<void>::get_return_object() noexcept {
    return Task<void>{std::coroutine_handle<TaskPromise<void>>::from_promise(*this)};
}
}  // namespace detail

}  // namespace rapidsmpf::streaming

// Task<T>: a lazy coroutine that one other coroutine awaits; it owns its frame.
//
//     Task<int> answer() { co_return 42; }
//     Task<void> caller() { int x = co_await answer(); ... }
//
// A task runs on the thread that awaits it until it first suspends, and continues on the thread that resumes it.
// It resumes its awaiter, on that thread. Destroying a task that has started and not finished is
// allowed only if nothing will resume it any more.
//
// Stack safety: symmetric transfer overflows the stack without optimisation on g++ 12, so awaiting starts the
// task inside await_suspend and an atomic flag says which came second: the end of the task or the suspension of
// its awaiter. The awaiter is resumed by the second. See CONTRIBUTING for the rules that keep g++ 12 from miscompiling coroutines.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace rapidsmpf::streaming {

template <typename T = void>
class Task;

namespace detail {

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
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> continuation) noexcept {
            auto& promise = handle_.promise();
            promise.continuation_ = continuation;
            handle_.resume();
            return !promise.second_.exchange(true, std::memory_order_acq_rel);
        }
        T await_resume() { return handle_.promise().take(); }

      private:
        std::coroutine_handle<promise_type> handle_;
    };

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

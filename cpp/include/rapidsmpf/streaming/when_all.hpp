// when_all(tasks): runs tasks concurrently and ends when all of them have ended.
//
// The tasks start one after the other on the awaiting thread, each up to its first suspension; tasks that are
// to run in parallel begin with `co_await executor.schedule()`. Whatever ends last resumes the awaiter.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

namespace detail {

// Counts down to the end of the last task; awaited by one coroutine.
class CountdownAwaiter {
  public:
    explicit CountdownAwaiter(std::size_t count) noexcept : count_{count + 1} {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> continuation) noexcept {
        continuation_ = continuation;
        return count_.fetch_sub(1, std::memory_order_acq_rel) != 1;
    }
    void await_resume() const noexcept {}
    // The caller must not touch this object afterwards.
    void arrive() noexcept {
        if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            continuation_.resume();
        }
    }

  private:
    std::atomic<std::size_t> count_;
    std::coroutine_handle<> continuation_;
};

// Tasks that run beside each other are parts of the actor that started them.
template <typename T>
class Parts {
  public:
    Parts(ActorPart part, std::vector<Task<T>>& tasks)
        : activity_{part.activity}, number_{static_cast<std::ptrdiff_t>(tasks.size())} {
        if (activity_ != nullptr) {
            for (auto& task : tasks) {
                task.set_actor_part(ActorPart{activity_, &task});
            }
            add_parts(activity_, number_ - 1);
        }
    }
    void end() { add_parts(activity_, 1 - number_); }

  private:
    Activity* activity_;
    std::ptrdiff_t number_;
};

template <typename T>
Detached run_member(
    Task<T>* task, std::optional<T>* value, std::exception_ptr* error, CountdownAwaiter* countdown) {
    try {
        value->emplace(co_await *task);
    } catch (...) {
        *error = std::current_exception();
    }
    countdown->arrive();
}

inline Detached run_member(Task<void>* task, std::exception_ptr* error, CountdownAwaiter* countdown) {
    try {
        co_await *task;
    } catch (...) {
        *error = std::current_exception();
    }
    countdown->arrive();
}

inline void rethrow_first(std::vector<std::exception_ptr> const& errors) {
    for (auto const& error : errors) {
        if (error) {
            std::rethrow_exception(error);
        }
    }
}

}  // namespace detail

// Throws the error of the first task (by position) that failed, after all have ended.
inline Task<void> when_all(std::vector<Task<void>> tasks) {
    std::vector<std::exception_ptr> errors(tasks.size());
    detail::CountdownAwaiter countdown{tasks.size()};
    detail::CurrentPart current;
    auto const part = co_await current;
    detail::Parts<void> parts{part, tasks};
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        detail::run_member(&tasks[i], &errors[i], &countdown);
    }
    co_await countdown;
    parts.end();
    detail::rethrow_first(errors);
}

// As above; returns the values by position.
template <typename T>
Task<std::vector<T>> when_all(std::vector<Task<T>> tasks) {
    std::vector<std::optional<T>> values(tasks.size());
    std::vector<std::exception_ptr> errors(tasks.size());
    detail::CountdownAwaiter countdown{tasks.size()};
    detail::CurrentPart current;
    auto const part = co_await current;
    detail::Parts<T> parts{part, tasks};
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        detail::run_member(&tasks[i], &values[i], &errors[i], &countdown);
    }
    co_await countdown;
    parts.end();
    detail::rethrow_first(errors);
    std::vector<T> result;
    result.reserve(values.size());
    for (auto& value : values) {
        result.push_back(std::move(*value));
    }
    co_return result;
}

}  // namespace rapidsmpf::streaming

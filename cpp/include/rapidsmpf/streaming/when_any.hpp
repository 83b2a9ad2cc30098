// when_any(tasks, others): runs tasks concurrently until one has ended.
//
//     CancellationSource others;
//     tasks.push_back(answer(others.token()));
//     tasks.push_back(sleep_for(executor, std::chrono::seconds{1}, others.token()));
//     auto const first = co_await when_any(std::move(tasks), others);   // 1: it took too long
//
// The first that ends cancels `others`, whose tokens the tasks listen to; when_any goes on once all have ended, so that none is
// left running with what its caller owned.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/task.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {

namespace detail {

// Which came first.
struct FirstToEnd {
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    explicit FirstToEnd(CancellationSource others_) : others{std::move(others_)} {}
    void end(std::size_t position) {
        auto expected = none;
        if (index.compare_exchange_strong(expected, position)) {
            others.cancel();
        }
    }
    std::atomic<std::size_t> index{none};
    CancellationSource others;
};

template <typename T>
Detached run_racer(
    Task<T>* task, std::size_t position, FirstToEnd* first, std::optional<T>* value,
    std::exception_ptr* error, CountdownAwaiter* countdown) {
    try {
        value->emplace(co_await *task);
    } catch (...) {
        *error = std::current_exception();
    }
    first->end(position);
    countdown->arrive();
}

inline Detached run_racer(
    Task<void>* task, std::size_t position, FirstToEnd* first, std::exception_ptr* error,
    CountdownAwaiter* countdown) {
    try {
        co_await *task;
    } catch (...) {
        *error = std::current_exception();
    }
    first->end(position);
    countdown->arrive();
}

inline void expect_racers(std::size_t count) {
    if (count == 0) {
        throw std::invalid_argument{"when_any() needs at least one task"};
    }
}

}  // namespace detail

// The position of the first task to end. Throws its error if it failed; how the others ended is not looked at.
inline Task<std::size_t> when_any(std::vector<Task<void>> tasks, CancellationSource others) {
    detail::expect_racers(tasks.size());
    detail::FirstToEnd first{std::move(others)};
    std::vector<std::exception_ptr> errors(tasks.size());
    detail::CountdownAwaiter countdown{tasks.size()};
    detail::CurrentPart current;
    auto const part = co_await current;
    detail::Parts<void> parts{part, tasks};
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        detail::run_racer(&tasks[i], i, &first, &errors[i], &countdown);
    }
    co_await countdown;
    parts.end();
    auto const index = first.index.load();
    if (errors[index]) {
        std::rethrow_exception(errors[index]);
    }
    co_return index;
}

// As above, with what the task returned.
template <typename T>
Task<std::pair<std::size_t, T>> when_any(std::vector<Task<T>> tasks, CancellationSource others) {
    detail::expect_racers(tasks.size());
    detail::FirstToEnd first{std::move(others)};
    std::vector<std::optional<T>> values(tasks.size());
    std::vector<std::exception_ptr> errors(tasks.size());
    detail::CountdownAwaiter countdown{tasks.size()};
    detail::CurrentPart current;
    auto const part = co_await current;
    detail::Parts<T> parts{part, tasks};
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        detail::run_racer(&tasks[i], i, &first, &values[i], &errors[i], &countdown);
    }
    co_await countdown;
    parts.end();
    auto const index = first.index.load();
    if (errors[index]) {
        std::rethrow_exception(errors[index]);
    }
    std::pair<std::size_t, T> result{index, std::move(*values[index])};
    co_return result;
}

}  // namespace rapidsmpf::streaming

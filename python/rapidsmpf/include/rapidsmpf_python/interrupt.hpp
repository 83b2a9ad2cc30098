// Waits that end when the user presses Ctrl-C.
//
// A wait in C++ does not see signals: Python only notes them and runs their handlers in the main thread, between
// bytecodes. So a wait is done in slices, between which Python looks at its signals (other threads find none).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <Python.h>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::python {

// Seconds as C++ waits take them; negative: no limit.
[[nodiscard]] inline std::optional<std::chrono::milliseconds> to_timeout(double seconds) {
    constexpr double longest = 1e9;  // seconds; longer than any wait
    if (seconds < 0) {
        return std::nullopt;
    }
    return std::chrono::milliseconds{static_cast<std::int64_t>(std::min(seconds, longest) * 1000)};
}

namespace detail {

// Between two looks at the signals.
inline constexpr std::chrono::milliseconds slice{200};

// What a signal handler raised, if signals came. Nothing in a daemon thread that outlives the interpreter.
[[nodiscard]] inline std::optional<PythonError> raised_by_signal() {
    WithGil const gil;
    if (!gil) {
        return std::nullopt;
    }
    if (PyErr_CheckSignals() == 0) {
        return std::nullopt;
    }
    return PythonError::fetch();
}

// The text of a wait's error that speaks of its last slice, speaking of all the time that it took.
[[nodiscard]] inline std::string with_whole_time(
    std::string text, std::chrono::milliseconds slice, std::chrono::milliseconds whole) {
    auto const words = "after " + std::to_string(slice.count()) + " ms";
    if (auto const at = text.find(words); at != std::string::npos) {
        text.replace(at, words.size(), "after " + std::to_string(whole.count()) + " ms");
    }
    return text;
}

}  // namespace detail

// Calls wait(timeout), which throws TimeoutError when its time is up, until it returns or `seconds` (negative: no
// limit) are over. The caller does not hold the GIL. Throws PythonError when a signal handler raised.
template <typename Wait>
auto wait_interruptibly(Wait&& wait, double seconds) {
    using Clock = std::chrono::steady_clock;
    auto const limit = to_timeout(seconds);
    auto const begin = Clock::now();
    while (true) {
        auto const passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
        bool const last = limit && *limit - passed <= detail::slice;
        auto const now = last ? std::max(*limit - passed, std::chrono::milliseconds{0}) : detail::slice;
        try {
            return wait(std::optional{now});
        } catch (TimeoutError const& error) {
            if (last) {
                throw TimeoutError{detail::with_whole_time(error.what(), now, *limit)};
            }
        }
        if (auto const error = detail::raised_by_signal()) {
            throw PythonError{*error};
        }
    }
}

// Calls work(stop) in a thread of its own until it ends, and returns what it returns. When a signal handler raises,
// requests a stop, waits for the end, which work() is to bring about then, and throws PythonError. The caller does not
// hold the GIL.
template <typename Work>
auto run_until_stopped(Work&& work) {
    std::stop_source stop;
    auto future = std::async(std::launch::async, [&] { return work(stop.get_token()); });
    while (future.wait_for(detail::slice) != std::future_status::ready) {
        if (auto const error = detail::raised_by_signal()) {
            stop.request_stop();
            future.wait();
            throw PythonError{*error};
        }
    }
    return future.get();
}

// The same for work(cancelled) that looks at a flag.
template <typename Work>
auto run_interruptibly(Work&& work) {
    std::atomic<bool> cancelled{false};
    return run_until_stopped([&](std::stop_token const& stop) {
        std::stop_callback const on_stop{stop, [&] { cancelled = true; }};
        return work(cancelled);
    });
}

}  // namespace rapidsmpf::python

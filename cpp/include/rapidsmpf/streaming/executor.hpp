// The threads that run coroutines.
//
// Coroutines that wake each other stay on one thread, where a hop costs least, as long as each runs for a short time;
// those that compute, and those that wait behind one that does, are spread over the others.
//
// An Executor has a fixed number of threads for coroutines, and as many threads as are needed at a time for
// calls that block (pulling a foreign Arrow stream, waiting for a collective), so that a blocking call never
// keeps a coroutine from running. Threads of the second kind appear on demand and end after being idle.
//
// A suspended coroutine belongs to the code that started it; the executor refers only to coroutines that
// are ready to run. Destroying it runs those to their next suspension, then joins the threads; it may happen on
// one of its own threads.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

class RunningNetwork;
class Timers;

class Executor {
    class Core;

  public:
    // Throws std::invalid_argument when num_threads is zero.
    explicit Executor(std::size_t num_threads);
    // num_streaming_threads (default 1). Throws std::invalid_argument when it is not a positive number.
    [[nodiscard]] static std::shared_ptr<Executor> from_options(config::Options options);
    ~Executor();
    Executor(Executor const&) = delete;
    Executor& operator=(Executor const&) = delete;

    [[nodiscard]] std::size_t num_threads() const noexcept;
    // Whether the calling thread is one of the coroutine threads.
    [[nodiscard]] bool runs_this_thread() const noexcept;
    // Threads for blocking calls that exist now, busy or idle.
    [[nodiscard]] std::size_t num_blocking_threads() const;

    // Resumes a suspended coroutine on one of the coroutine threads; with one thread in the order of posting, up to some
    // hundreds.
    void post(std::coroutine_handle<> coroutine);

    // post() for those who must not own the executor: it may be let go anywhere, also where ending threads is not allowed.
    using Poster = std::function<void(std::coroutine_handle<>)>;
    [[nodiscard]] Poster poster() const;

    class ScheduleAwaiter {
      public:
        explicit ScheduleAwaiter(Executor& executor) noexcept : executor_{&executor} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] void await_suspend(std::coroutine_handle<> coroutine) {
            executor_->post(coroutine);
        }
        void await_resume() const noexcept {}

      private:
        Executor* executor_;
    };

    class BlockingAwaiter {
      public:
        explicit BlockingAwaiter(Executor& executor) noexcept : executor_{&executor} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] void await_suspend(std::coroutine_handle<> coroutine) {
            executor_->post_blocking(coroutine);
        }
        void await_resume() const noexcept {}

      private:
        Executor* executor_;
    };

    // The way back from run_blocking(). Unlike schedule() it counts this thread as free before the coroutine can go
    // on, so that its next blocking call finds this thread and does not make another. Only for a coroutine that
    // the thread for blocking calls resumed itself, and that lets go of the thread here.
    class LeaveBlockingAwaiter {
      public:
        explicit LeaveBlockingAwaiter(Executor& executor) noexcept : executor_{&executor} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] void await_suspend(std::coroutine_handle<> coroutine) {
            executor_->post_from_blocking(coroutine);
        }
        void await_resume() const noexcept {}

      private:
        Executor* executor_;
    };

    // co_await schedule(): continue on a coroutine thread, behind the coroutines that are ready already.
    [[nodiscard]] ScheduleAwaiter schedule() noexcept { return ScheduleAwaiter{*this}; }
    // co_await enter_blocking(): continue on a thread where blocking is allowed; go back with schedule().
    // Throws SystemError when the operating system gives no more threads.
    [[nodiscard]] BlockingAwaiter enter_blocking() noexcept { return BlockingAwaiter{*this}; }

    [[nodiscard]] LeaveBlockingAwaiter leave_blocking() noexcept { return LeaveBlockingAwaiter{*this}; }

    // Runs function() where blocking is allowed, and continues with its result on a coroutine thread.
    // Pass a named function object with std::move (see CONTRIBUTING on g++ 12).
    template <typename Function>
    Task<std::invoke_result_t<Function&>> run_blocking(Function function) {
        using Result = std::invoke_result_t<Function&>;
        std::exception_ptr error;
        co_await enter_blocking();
        if constexpr (std::is_void_v<Result>) {
            try {
                function();
            } catch (...) {
                error = std::current_exception();
            }
            co_await leave_blocking();
            if (error) {
                std::rethrow_exception(std::move(error));
            }
        } else {
            std::optional<Result> result;
            try {
                result.emplace(function());
            } catch (...) {
                error = std::current_exception();
            }
            co_await leave_blocking();
            if (error) {
                std::rethrow_exception(std::move(error));
            }
            co_return std::move(*result);
        }
    }

    // Starts a task on a coroutine thread. The future gets its end or its error; dropping the future does not
    // stop the task.
    std::future<void> spawn(Task<void> task);

    // Ends the threads when no coroutine is ready and no blocking call runs; idempotent. A coroutine that is posted
    // afterwards still runs, on a thread made for it.
    void shutdown() noexcept;

    // Word that something outside (a disk, another rank, a clock, another language's event loop) will resume a coroutine. As long as
    // one lives, coroutines that all wait are not taken for a network at a standstill. Waits of this library have one; who resumes
    // coroutines from threads of their own holds one meanwhile. Move-only; does not own the executor.
    class OutsideWait {
      public:
        OutsideWait(OutsideWait&& other) noexcept = default;
        OutsideWait& operator=(OutsideWait&& other) noexcept;
        OutsideWait(OutsideWait const&) = delete;
        OutsideWait& operator=(OutsideWait const&) = delete;
        ~OutsideWait();

      private:
        friend class Executor;
        explicit OutsideWait(std::shared_ptr<Core> core) noexcept;
        std::shared_ptr<Core> core_;
    };
    [[nodiscard]] OutsideWait outside_wait() const;

    // For this repository: the networks that run here, as long as they live.
    void add_network(std::weak_ptr<RunningNetwork> network);
    [[nodiscard]] std::vector<std::shared_ptr<RunningNetwork>> networks() const;
    // For this repository: an actor that runs outside has found that it waits. Tells the networks if all waits.
    void look_for_standstill();
    // For this repository: the alarms that timer.hpp sets.
    [[nodiscard]] Timers& timers();

  private:
    void post_blocking(std::coroutine_handle<> coroutine);
    void post_from_blocking(std::coroutine_handle<> coroutine);

    std::shared_ptr<Core> core_;
};

}  // namespace rapidsmpf::streaming

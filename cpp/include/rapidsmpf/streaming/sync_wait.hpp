// sync_wait(task): runs a task from ordinary code and blocks the thread until it has ended.
//
// Never call it on a thread of an executor: that thread may be the one that the task needs.
#pragma once

#include <exception>
#include <optional>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

namespace detail {

// Where the waiting thread finds that the task has ended.
class Completion {
  public:
    void set(std::exception_ptr error) noexcept {
        MutexLock lock{mutex_};
        error_ = std::move(error);
        done_ = true;
        // Under the lock: the waiter destroys this object as soon as it can take the lock.
        changed_.notify_one();
    }
    // Throws the task's error.
    void wait() {
        UniqueLock lock{mutex_};
        changed_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return done_; });
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

  private:
    Mutex mutex_;
    ConditionVariable changed_;
    bool done_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// The task is destroyed before the waiting thread continues, so that what its frame owned is gone by then.
template <typename T>
Detached run_into(Task<T> task, std::optional<T>* value, Completion* completion) {
    std::exception_ptr error;
    {
        Task<T> local = std::move(task);
        try {
            value->emplace(co_await local);
        } catch (...) {
            error = std::current_exception();
        }
    }
    completion->set(std::move(error));
}

inline Detached run_into(Task<void> task, Completion* completion) {
    std::exception_ptr error;
    {
        Task<void> local = std::move(task);
        try {
            co_await local;
        } catch (...) {
            error = std::current_exception();
        }
    }
    completion->set(std::move(error));
}

}  // namespace detail

// Returns what the task returns, throws what it throws.
template <typename T>
T sync_wait(Task<T> task) {
    detail::Completion completion;
    if constexpr (std::is_void_v<T>) {
        detail::run_into(std::move(task), &completion);
        completion.wait();
    } else {
        std::optional<T> value;
        detail::run_into(std::move(task), &value, &completion);
        completion.wait();
        return std::move(*value);
    }
}

}  // namespace rapidsmpf::streaming

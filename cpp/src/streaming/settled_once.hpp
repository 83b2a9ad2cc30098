// A wait that is ended by what was waited for or by a cancellation, whichever is first. Shared by those and the coroutine.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <rapidsmpf/streaming/executor.hpp>

namespace rapidsmpf::streaming {

class SettledOnce : public std::enable_shared_from_this<SettledOnce> {
  public:
    explicit SettledOnce(Executor const& executor)
        : post_{executor.poster()}, outside_{executor.outside_wait()} {}

    // Before anyone can settle it.
    void set_coroutine(std::coroutine_handle<> coroutine) noexcept { coroutine_ = coroutine; }
    // Only the first call counts; whether this was it. On any thread.
    bool settle(std::exception_ptr error = nullptr) {
        if (settled_.exchange(true)) {
            return false;
        }
        error_ = std::move(error);
        if (second_.exchange(true, std::memory_order_acq_rel)) {
            post_(coroutine_);
        }
        outside_.reset();
        return true;
    }
    // settle() for those who are told of a failure.
    [[nodiscard]] std::function<void(std::exception_ptr)> canceller() {
        return [self = shared_from_this()](std::exception_ptr error) { self->settle(std::move(error)); };
    }
    // The end of await_suspend: whether the coroutine has to wait. From here on only a copy of the pointer to this is safe.
    [[nodiscard]] bool suspended() { return !second_.exchange(true, std::memory_order_acq_rel); }
    // Throws what settled the wait, if that was an error.
    void rethrow() {
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

  private:
    Executor::Poster post_;
    std::optional<Executor::OutsideWait> outside_;  // until it is settled
    std::coroutine_handle<> coroutine_;
    std::exception_ptr error_;
    std::atomic<bool> settled_{false};
    std::atomic<bool> second_{false};  // set by the first of: settled, suspended
};

}  // namespace rapidsmpf::streaming

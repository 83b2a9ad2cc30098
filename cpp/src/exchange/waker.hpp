// Tells the progress thread that an operation has something for it to look at.
//
// Apart from the operation, because the arbiter may hold it for a moment longer than the operation lives.
//
// Threading: take() on the progress thread, the rest anywhere.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include <rapidsmpf/core/progress_thread.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

namespace rapidsmpf::exchange {

class Waker final : public MoveListener {
  public:
    explicit Waker(std::shared_ptr<ProgressThread> progress) : progress_{std::move(progress)} {}

    void wake() noexcept {
        note();
        progress_->wake();
    }
    // The same where the progress thread is known to come by.
    void note() noexcept { is_due_ = true; }
    // Whether there is something to look at; forgotten once asked for.
    [[nodiscard]] bool take() noexcept { return is_due_.exchange(false); }
    // A chunk that waits to be sent has been spilled or read back.
    void moved() noexcept override { wake(); }

  private:
    std::shared_ptr<ProgressThread> progress_;
    std::atomic<bool> is_due_{true};
};

}  // namespace rapidsmpf::exchange

// Coroutines that are ready to run on one thread. First in, first out; its thread adds and takes, others may take.
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>

namespace rapidsmpf::streaming {

class RunQueue {
  public:
    // By its own thread: false when the queue is full.
    [[nodiscard]] bool push(std::coroutine_handle<> coroutine) noexcept {
        auto const tail = tail_.load(std::memory_order_relaxed);
        if (tail - head_.load(std::memory_order_acquire) == slots_.size()) {
            return false;
        }
        slots_[tail % slots_.size()].store(coroutine.address(), std::memory_order_relaxed);
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    // By any thread; null when there is none.
    [[nodiscard]] std::coroutine_handle<> pop() noexcept {
        auto head = head_.load(std::memory_order_acquire);
        while (head != tail_.load(std::memory_order_acquire)) {
            auto* const address = slots_[head % slots_.size()].load(std::memory_order_relaxed);
            // Numbers are never used again, so that a slot cannot have been filled anew unnoticed.
            if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel)) {
                return std::coroutine_handle<>::from_address(address);
            }
        }
        return {};
    }

    [[nodiscard]] std::size_t size() const noexcept {
        auto const head = head_.load(std::memory_order_relaxed);
        auto const tail = tail_.load(std::memory_order_relaxed);
        return tail > head ? static_cast<std::size_t>(tail - head) : 0;
    }

  private:
    std::atomic<std::uint64_t> head_{0};
    std::atomic<std::uint64_t> tail_{0};
    std::array<std::atomic<void*>, 256> slots_{};
};

}  // namespace rapidsmpf::streaming

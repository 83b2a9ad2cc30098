// Memory for one call on a GPU: how its scratch memory is divided, and what goes to and from the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::detail {

using device::detail::check_cuda;

// Hands out parts of one block. Used twice: without memory, to learn how much is needed, and with it.
class Arena {
  public:
    explicit Arena(std::byte* base) noexcept : base_{base} {}
    template <typename T>
    [[nodiscard]] T* take(std::uint64_t count) noexcept {
        auto* const at = reinterpret_cast<T*>(base_ + used_);
        used_ += (count * sizeof(T) + Device::alignment - 1) / Device::alignment * Device::alignment;
        return at;
    }
    [[nodiscard]] std::size_t used() const noexcept { return used_; }

  private:
    std::byte* base_;
    std::size_t used_{0};
};

// Page-locked memory through which descriptors go to the GPU and counts come back, and the mark of their coming. One
// for each thread, kept: locking pages takes longer than a whole call. A call waits for the counts, which come behind
// the descriptors; so the next one finds the memory free.
class StagingBuffer {
  public:
    StagingBuffer() = default;
    ~StagingBuffer() {  // at the end of the thread: errors have no consequence then
        if (memory_ != nullptr) {
            cudaFreeHost(memory_);
        }
        if (mark_ != nullptr) {
            cudaEventDestroy(mark_);
        }
    }
    StagingBuffer(StagingBuffer const&) = delete;
    StagingBuffer& operator=(StagingBuffer const&) = delete;

    [[nodiscard]] static StagingBuffer& of_this_thread() {
        thread_local StagingBuffer staging;
        return staging;
    }
    // Zeroes.
    [[nodiscard]] std::byte* memory(std::size_t bytes) {
        if (bytes > size_) {
            if (memory_ != nullptr) {
                check_cuda(cudaFreeHost(std::exchange(memory_, nullptr)), "cudaFreeHost");
            }
            size_ = 0;
            auto const rounded = std::max<std::size_t>(bytes * 2, 64U << 10U);
            check_cuda(cudaHostAlloc(&memory_, rounded, cudaHostAllocPortable), "cudaHostAlloc");
            size_ = rounded;
        }
        std::memset(memory_, 0, bytes);
        return static_cast<std::byte*>(memory_);
    }
    [[nodiscard]] std::byte* memory_behind(std::size_t offset) noexcept {
        return static_cast<std::byte*>(memory_) + offset;
    }
    void mark(Stream stream) {
        if (mark_ == nullptr) {
            check_cuda(cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming), "cudaEventCreate");
        }
        check_cuda(cudaEventRecord(mark_, static_cast<cudaStream_t>(stream.handle())), "cudaEventRecord");
    }
    void wait() { check_cuda(cudaEventSynchronize(mark_), "counting rows"); }

  private:
    void* memory_{nullptr};
    std::size_t size_{0};
    cudaEvent_t mark_{nullptr};
};

}  // namespace rapidsmpf::detail

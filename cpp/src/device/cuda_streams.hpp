// CUDA streams that are handed out in turn, for the work of many that need not wait for each other.
//
// They live as long as the process, and may be used until then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device::detail {

enum class StreamPriority : std::uint8_t { usual, highest };

class CudaStreams {
  public:
    // On the GPU that is current.
    void open(std::size_t count, StreamPriority priority = StreamPriority::usual) {
        int lowest{0};
        int highest{0};
        check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
        auto const value = priority == StreamPriority::highest ? highest : 0;
        streams_.resize(count);
        for (auto& stream : streams_) {
            check_cuda(
                cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, value),
                "cudaStreamCreateWithPriority");
        }
    }
    // After open().
    [[nodiscard]] Stream next() noexcept {
        return Stream{streams_[next_.fetch_add(1, std::memory_order_relaxed) % streams_.size()]};
    }

  private:
    std::vector<cudaStream_t> streams_;
    std::atomic<std::size_t> next_{0};
};

}  // namespace rapidsmpf::device::detail

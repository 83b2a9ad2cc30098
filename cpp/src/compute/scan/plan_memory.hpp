// The memory of a plan of the room `pages`. Its head, in which are chunks, counters and what else both sides read, is on the host, too.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <cudf/utilities/error.hpp>
#include <rmm/device_buffer.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

class PlanMemory {
  public:
    PlanMemory(std::size_t bytes, std::size_t head_bytes, Work& work)
        : memory_{bytes, work.stream(), work.mr()}, head_(head_bytes) {}

    [[nodiscard]] std::byte* on_device() noexcept { return static_cast<std::byte*>(memory_.data()); }

    // Writes to the head.
    template <typename T>
    void put(std::size_t at, std::span<T const> values) {
        std::memcpy(head_.data() + at, values.data(), values.size_bytes());
    }
    // Enqueues that the head is copied to the device. What was not written is zero.
    void send(Work& work) {
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            memory_.data(), head_.data(), head_.size(), cudaMemcpyHostToDevice, work.stream().get()));
    }

    // Copies bytes [from, to) of the head back, and waits for it.
    void read_back(std::size_t from, std::size_t to, Work& work) {
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            head_.data() + from, on_device() + from, to - from, cudaMemcpyDeviceToHost, work.stream().get()));
        work.synchronize();
    }
    void read_back(Work& work) { read_back(0, head_.size(), work); }

    template <typename T>
    [[nodiscard]] T get(std::size_t at) const {
        T value;
        std::memcpy(&value, head_.data() + at, sizeof value);
        return value;
    }
    template <typename T>
    void get(std::size_t at, std::span<T> values) const {
        std::memcpy(values.data(), head_.data() + at, values.size_bytes());
    }

    // The memory itself, for a plan that is used on.
    [[nodiscard]] rmm::device_buffer release() && { return std::move(memory_); }

  private:
    rmm::device_buffer memory_;
    std::vector<std::byte> head_;
};

}  // namespace rapidsmpf::compute

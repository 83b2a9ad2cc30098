// Page-locked memory from a memory pool of the CUDA driver.
//
// The pool is stream-ordered, but a block of ours must be usable by the host at once. So the pool only ever
// sees a stream of its own, on which nothing else runs; what is given back waits in a list until the stream
// of its user has passed it.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda/memory_pool>
#include <cuda_runtime_api.h>
#include <sched.h>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

#include "pinned_pool.hpp"

namespace rapidsmpf::memory {

namespace {

// How much is locked at a time in the background.
constexpr std::size_t warming_step = 64UL << 20U;

void check(cudaError_t status, char const* what) {
    if (status != cudaSuccess) {
        throw std::runtime_error(std::string{what} + ": " + cudaGetErrorString(status));
    }
}

int numa_node_of_this_thread() {
    unsigned cpu{0};
    unsigned node{0};
    return ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : 0;
}

cuda::memory_pool_properties pool_properties(PinnedMemoryResource::Properties const& properties) {
    cuda::memory_pool_properties native;
    native.max_pool_size = properties.max_pool_size;  // released never: the default threshold is the maximum
    return native;
}

class OwnStream {
  public:
    OwnStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
    ~OwnStream() { cudaStreamDestroy(stream_); }
    OwnStream(OwnStream const&) = delete;
    OwnStream& operator=(OwnStream const&) = delete;
    [[nodiscard]] cuda::stream_ref ref() const noexcept { return cuda::stream_ref{stream_}; }
    [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

  private:
    cudaStream_t stream_{};
};

class CudaPinnedPool final : public PinnedMemoryResource {
  public:
    explicit CudaPinnedPool(Properties const& properties)
        : PinnedMemoryResource{properties},
          pool_{properties.numa_node.value_or(numa_node_of_this_thread()), pool_properties(properties)} {
        check(cudaGetDevice(&ordinal_), "cudaGetDevice");
        if (properties.initial_pool_size > 0) {
            warmer_ = std::jthread{[this](std::stop_token const& stop) { warm(stop); }};
        }
    }

    ~CudaPinnedPool() override {
        stop_warming();
        for (auto& [pointer, bytes, event] : returning_) {
            try {
                event->synchronize();
                pool_.deallocate(stream_.ref(), pointer, bytes);
            } catch (...) {  // the device is beyond use; the driver takes the pool back with the process
            }
        }
        cudaStreamSynchronize(stream_.get());
    }

    [[nodiscard]] void* allocate(std::size_t bytes, Stream /*stream*/) override {
        if (bytes == 0) {
            return nullptr;
        }
        take_back(Wait::no);
        if (auto* const pointer = try_allocate(bytes)) {
            return pointer;
        }
        // What the warmer holds and what is on its way back may be what is missing.
        stop_warming();
        take_back(Wait::yes);
        if (auto* const pointer = try_allocate(bytes)) {
            return pointer;
        }
        throw OutOfMemory{
            "cannot allocate " + config::format_bytes(static_cast<double>(bytes))
            + " of page-locked host memory"
            + (properties().max_pool_size == 0
                   ? std::string{}
                   : " (pinned_max_pool_size is "
                         + config::format_bytes(static_cast<double>(properties().max_pool_size)) + ")")};
    }

    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        if (pointer == nullptr) {
            return;
        }
        auto const native = static_cast<cudaStream_t>(stream.handle());
        try {
            if (cudaStreamQuery(native) == cudaErrorNotReady) {
                auto event = Device::current().make_event();
                event->record(stream);
                std::lock_guard lock{mutex_};
                returning_.push_back({pointer, bytes, std::move(event)});
                return;
            }
        } catch (...) {
            cudaStreamSynchronize(native);  // no event to be had: wait here
        }
        pool_.deallocate(stream_.ref(), pointer, bytes);
    }

  private:
    enum class Wait : bool { no, yes };
    struct Returning {
        void* pointer;
        std::size_t bytes;
        std::unique_ptr<Event> event;
    };

    [[nodiscard]] void* try_allocate(std::size_t bytes) {
        void* pointer{nullptr};
        try {
            pointer = pool_.allocate(stream_.ref(), bytes);
        } catch (cuda::cuda_error const&) {
            (void)cudaGetLastError();  // or the next check finds it
            return nullptr;
        }
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");  // idle but for the allocation
        return pointer;
    }

    void take_back(Wait wait) {
        std::vector<Returning> done;
        {
            std::lock_guard lock{mutex_};
            auto const still_used = std::stable_partition(
                returning_.begin(), returning_.end(),
                [&](Returning const& block) { return wait == Wait::no && !block.event->is_done(); });
            done.assign(std::make_move_iterator(still_used), std::make_move_iterator(returning_.end()));
            returning_.erase(still_used, returning_.end());
        }
        for (auto const& block : done) {
            block.event->synchronize();
            pool_.deallocate(stream_.ref(), block.pointer, block.bytes);
        }
    }

    // Locks the first part of the pool: allocates it, and gives it back to the pool, which keeps it.
    void warm(std::stop_token const& stop) {
        try {
            check(cudaSetDevice(ordinal_), "cudaSetDevice");
            OwnStream stream;
            std::vector<std::pair<void*, std::size_t>> blocks;
            for (auto left = properties().initial_pool_size; left > 0 && !stop.stop_requested();) {
                auto const bytes = std::min(left, warming_step);
                try {
                    blocks.emplace_back(pool_.allocate(stream.ref(), bytes), bytes);
                } catch (cuda::cuda_error const&) {
                    (void)cudaGetLastError();
                    break;  // a wish, not a need
                }
                left -= bytes;
            }
            for (auto const& [pointer, bytes] : blocks) {
                pool_.deallocate(stream.ref(), pointer, bytes);
            }
            cudaStreamSynchronize(stream.get());
        } catch (std::exception const&) {  // the pool then grows on demand
        }
    }

    void stop_warming() {
        std::lock_guard lock{warmer_mutex_};
        if (warmer_.joinable()) {
            warmer_.request_stop();
            warmer_.join();
        }
    }

    int ordinal_{0};
    cuda::pinned_memory_pool pool_;
    OwnStream stream_;
    std::mutex mutex_;  // guards returning_
    std::vector<Returning> returning_;
    std::mutex warmer_mutex_;  // guards warmer_
    std::jthread warmer_;
};

}  // namespace

std::shared_ptr<PinnedMemoryResource> make_pinned_pool(
    PinnedMemoryResource::Properties const& properties, std::string& reason) {
    if (Device::current().kind() != DeviceKind::cuda) {
        reason = "the compute device is the CPU, and only a GPU can use it";
        return nullptr;
    }
    try {
        return std::make_shared<CudaPinnedPool>(properties);
    } catch (std::exception const& error) {
        (void)cudaGetLastError();
        reason = error.what();
        return nullptr;
    }
}

}  // namespace rapidsmpf::memory

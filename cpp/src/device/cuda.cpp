// A CUDA GPU as compute device: memory through RMM's current resource, work ordered on streams.
//
// Only the cuda* files of this room include CUDA headers. The CUDA runtime is linked statically and libcuda is
// loaded by it at run time, so the same binary works on machines without a GPU.
//
// The device is that of the thread that asks for it first; what this process's own threads do is done on that one.
#include <atomic>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>
#include <rmm/mr/per_device_resource.hpp>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/detail/exported_memory.hpp>
#include <rapidsmpf/device/detail/gather_copy.hpp>
#include <rapidsmpf/device/device.hpp>

#include "device/cuda_exported_memory.hpp"
#include "device/cuda_streams.hpp"

namespace rapidsmpf::device {

namespace {

using detail::check_cuda;
using detail::native;
using detail::OnDevice;

// Remembers that it is done: asking the driver takes microseconds, and all parts of a table share an event.
class CudaEvent final : public Event {
  public:
    explicit CudaEvent(int ordinal) {
        OnDevice const here{ordinal};
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    ~CudaEvent() override { cudaEventDestroy(event_); }
    CudaEvent(CudaEvent const&) = delete;
    CudaEvent& operator=(CudaEvent const&) = delete;

    void record(Stream stream) override {
        done_.store(false, std::memory_order_relaxed);
        check_cuda(cudaEventRecord(event_, native(stream)), "cudaEventRecord");
    }
    [[nodiscard]] bool is_done() const override {
        if (done_.load(std::memory_order_acquire)) {
            return true;
        }
        auto const status = cudaEventQuery(event_);
        if (status == cudaErrorNotReady) {
            return false;
        }
        check_cuda(status, "cudaEventQuery");
        done_.store(true, std::memory_order_release);
        return true;
    }
    void synchronize() const override {
        if (!done_.load(std::memory_order_acquire)) {
            check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
            done_.store(true, std::memory_order_release);
        }
    }
    void wait(Stream stream) const override {
        if (!done_.load(std::memory_order_acquire)) {
            check_cuda(cudaStreamWaitEvent(native(stream), event_, 0), "cudaStreamWaitEvent");
        }
    }

  private:
    cudaEvent_t event_{};
    std::atomic<bool> mutable done_{false};
};

class CudaDevice final : public Device {
  public:
    CudaDevice() {
        check_cuda(cudaGetDevice(&ordinal_), "cudaGetDevice");
        check_cuda(cudaGetDeviceProperties(&properties_, ordinal_), "cudaGetDeviceProperties");
        streams_.open(16);
        copy_streams_.open(4);
    }

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
    [[nodiscard]] std::string name() const override {
        return "cuda:" + std::to_string(ordinal_) + " " + std::string{properties_.name};
    }
    [[nodiscard]] std::int64_t total_memory() const override {
        return static_cast<std::int64_t>(properties_.totalGlobalMem);
    }
    [[nodiscard]] std::int64_t used_memory() const override {
        std::size_t free{0};
        std::size_t total{0};
        OnDevice const here{ordinal_};
        check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return static_cast<std::int64_t>(total - free);
    }

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override {
        OnDevice const here{ordinal_};
        try {
            return rmm::mr::get_current_device_resource_ref().allocate(
                cuda::stream_ref{native(stream)}, bytes, alignment);
        } catch (std::bad_alloc const& error) {
            throw OutOfMemory{
                "cannot allocate " + config::format_bytes(bytes) + " on " + name() + ": " + error.what()};
        }
    }
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        OnDevice const here{ordinal_};
        rmm::mr::get_current_device_resource_ref().deallocate(
            cuda::stream_ref{native(stream)}, pointer, bytes, alignment);
    }
    void copy(void* destination, void const* source, std::size_t bytes, Stream stream) override {
        if (bytes > 0) {
            OnDevice const here{ordinal_};
            check_cuda(
                cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native(stream)),
                "cudaMemcpyAsync");
        }
    }
    void copy_pieces(std::span<CopyPiece const> pieces, Stream stream) override {
#if CUDART_VERSION >= 13000
        // One call for all. The legacy default stream takes no batches.
        if (pieces.size() > 1 && stream.handle() != nullptr) {
            copy_batch(pieces, stream);
            return;
        }
#endif
        for (auto const& piece : pieces) {
            copy(piece.destination, piece.source, piece.bytes, stream);
        }
    }
    void gather_copy(
        std::span<CopyPiece const> pieces, Stream stream, std::uint32_t most_processors) override {
        OnDevice const here{ordinal_};
        gather_copy_cuda(pieces, stream, most_processors);
    }
    void synchronize(Stream stream) override {
        OnDevice const here{ordinal_};
        check_cuda(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize");
    }
    [[nodiscard]] std::unique_ptr<Event> make_event() override {
        return std::make_unique<CudaEvent>(ordinal_);
    }
    [[nodiscard]] Stream next_stream() override { return streams_.next(); }
    [[nodiscard]] Stream next_copy_stream() override { return copy_streams_.next(); }

    [[nodiscard]] ExportedMemory* exported_memory(std::string& reason) override {
        MutexLock const lock{exported_mutex_};
        if (!exported_ && !no_export_.empty()) {
            reason = no_export_;
        } else if (!exported_) {
            exported_ = detail::make_cuda_exported_memory(*this, ordinal_, no_export_);
            reason = no_export_;
        }
        return exported_.get();
    }

  private:
#if CUDART_VERSION >= 13000
    void copy_batch(std::span<CopyPiece const> pieces, Stream stream) const {
        std::vector<void*> to;
        std::vector<void const*> from;
        std::vector<std::size_t> bytes;
        for (auto const& piece : pieces) {
            if (piece.bytes > 0) {
                to.push_back(piece.destination);
                from.push_back(piece.source);
                bytes.push_back(piece.bytes);
            }
        }
        if (bytes.empty()) {
            return;
        }
        cudaMemcpyAttributes attributes{};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
        std::size_t for_all{0};
        OnDevice const here{ordinal_};
        check_cuda(
            cudaMemcpyBatchAsync(
                to.data(), from.data(), bytes.data(), bytes.size(), &attributes, &for_all, 1, native(stream)),
            "cudaMemcpyBatchAsync");
    }
#endif

    int ordinal_{0};
    Mutex exported_mutex_;
    std::unique_ptr<ExportedMemory> exported_ RAPIDSMPF_GUARDED_BY(exported_mutex_);  // made on first use
    std::string no_export_ RAPIDSMPF_GUARDED_BY(exported_mutex_);                     // why there is none
    cudaDeviceProp properties_{};
    detail::CudaStreams streams_;
    detail::CudaStreams copy_streams_;
};

}  // namespace

int count_cuda_devices() noexcept {
    int count{0};
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Device> make_cuda_device(std::string& reason) {
    int count{0};
    auto const status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        reason = status == cudaSuccess ? "no device" : cudaGetErrorString(status);
        return nullptr;
    }
    return std::make_unique<CudaDevice>();
}

}  // namespace rapidsmpf::device

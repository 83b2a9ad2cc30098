// What all programs of an engine share: memory, streams, mapped files, footers.
//
// While there is a Context, RMM's current device resource is the one of its DeviceMemory (current_resource.hpp). What it gave
// out (columns of results) keeps the memory's resource alive beyond it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include <rapidsmpf/compute/detail/runtime.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "compute/current_resource.hpp"
#include "compute/device_memory.hpp"
#include "compute/scan/footers.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/parquet_source.hpp"
#include "compute/scan/scan_cache.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

// Thread-safe.
class Context {
  public:
    // Streams that go back to the context.
    class Streams {
      public:
        Streams(Context& context, std::size_t count);
        ~Streams();
        Streams(Streams const&) = delete;
        Streams& operator=(Streams const&) = delete;
        [[nodiscard]] std::vector<cudaStream_t> const& get() const noexcept { return streams_; }

      private:
        Context& context_;
        std::vector<cudaStream_t> streams_;
    };

    Context(std::shared_ptr<BufferResource> resource, RuntimeSettings const& settings);
    ~Context();
    Context(Context const&) = delete;
    Context& operator=(Context const&) = delete;

    [[nodiscard]] RuntimeSettings const& settings() const noexcept { return settings_; }
    [[nodiscard]] BufferResource& resource() const noexcept { return *resource_; }
    [[nodiscard]] DeviceMemory& memory() const noexcept { return *memory_; }
    [[nodiscard]] MappedFiles& files() noexcept { return *files_; }
    [[nodiscard]] Scanning scanning() const noexcept {
        return {scan_settings_, *files_, *slabs_, *footers_, scan_cache_.get()};
    }
    // Bytes that keep what scans have read.
    [[nodiscard]] std::size_t cached_bytes() const { return scan_cache_ ? scan_cache_->bytes() : 0; }
    // The GPU that all is done on: for the threads to choose.
    [[nodiscard]] int device() const noexcept { return device_; }
    void enter_thread() const;
    // For what moves rows between device and host, one thread at a time.
    [[nodiscard]] cudaStream_t move_stream() const noexcept { return move_stream_; }

  private:
    RuntimeSettings settings_;
    ScanSettings scan_settings_;
    std::shared_ptr<BufferResource> resource_;
    int device_{0};
    std::shared_ptr<DeviceMemory> memory_;
    CurrentResource current_resource_;
    std::unique_ptr<MappedFiles> files_;
    std::unique_ptr<SlabReader> slabs_;
    std::shared_ptr<FooterCache> footers_;
    std::unique_ptr<ScanCache> scan_cache_;  // null: nothing is kept

    cudaStream_t move_stream_{};

    Mutex mutex_;
    std::vector<cudaStream_t> free_streams_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::compute

// Reads ranges of files into device memory through page-locked slabs: threads read into slabs, and asynchronous copies move
// these to the device.
//
// The threads live as long as the reader and serve one reading after the other, so that the last windows of one pass are read
// while others already read the first windows of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/scan/data_file.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

class SlabReader {
    struct Work;

  public:
    // A read of extents of one file into a device buffer. After its destructor, no thread enqueues another copy into the
    // buffer; copies that are already on the stream still run.
    class Reading {
      public:
        ~Reading();
        Reading(Reading&& other) noexcept = default;
        Reading& operator=(Reading&&) = delete;

        // Waits until all copies have been enqueued on the stream. Throws the first error of the threads.
        void wait();

      private:
        friend class SlabReader;
        explicit Reading(SlabReader& owner, std::shared_ptr<Work> work);
        SlabReader* owner_;
        std::shared_ptr<Work> work_;
    };

    // Takes its slabs from `files`, which outlives it.
    SlabReader(int device, ScanSettings const& settings, MappedFiles& files);
    // Waits for the copies from its slabs.
    ~SlabReader();
    SlabReader(SlabReader const&) = delete;
    SlabReader& operator=(SlabReader const&) = delete;

    // Starts to read the extents to their places in `buffer`, and does not wait. Readings are served in FIFO order. The
    // buffer must outlive the reading and the copies that it enqueues on the stream.
    [[nodiscard]] Reading begin(
        std::shared_ptr<DataFile const> file, std::span<Extent const> extents, std::byte* buffer,
        cudaStream_t stream);

  private:
    void run();
    void drop(Work& work) noexcept;

    int const device_;
    ScanSettings const settings_;
    MappedFiles& files_;

    Mutex mutex_;
    ConditionVariable changed_;  // queue_ or closing_ has changed
    ConditionVariable done_;     // all copies of a reading have been enqueued
    // Readings with windows that no thread has taken.
    std::deque<std::shared_ptr<Work>> queue_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<std::thread> threads_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool closing_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

}  // namespace rapidsmpf::compute

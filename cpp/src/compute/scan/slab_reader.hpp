// Reads ranges of files into device memory through page-locked slabs: threads fill slabs, copy engines empty them.
//
// The threads live as long as the reader and go from one reading to the next without a pause, so that the last windows of
// one pass are read beside the first of the next.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "compute/scan/data_file.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

class SlabReader {
    struct Work;

  public:
    // Extents of one file that are on their way into a buffer. When it goes, no thread puts anything more into the buffer;
    // copies that are on the stream stay there.
    class Reading {
      public:
        ~Reading();
        Reading(Reading&& other) noexcept = default;
        Reading& operator=(Reading&&) = delete;

        // Returns when all copies are on the stream. Throws what reading threw.
        void wait();

      private:
        friend class SlabReader;
        explicit Reading(SlabReader& owner, std::shared_ptr<Work> work);
        SlabReader* owner_;
        std::shared_ptr<Work> work_;
    };

    // `files` gives the slabs, and outlives it.
    SlabReader(int device, ScanSettings const& settings, MappedFiles& files);
    // Waits for copies from its slabs.
    ~SlabReader();
    SlabReader(SlabReader const&) = delete;
    SlabReader& operator=(SlabReader const&) = delete;

    // Begins to read the extents to their places in `buffer`, and returns. Readings are served in the order in which they
    // began. The buffer outlives the reading and what it put on the stream.
    [[nodiscard]] Reading begin(
        std::shared_ptr<DataFile const> file, std::span<Extent const> extents, std::byte* buffer,
        cudaStream_t stream);

  private:
    void run();
    void drop(Work& work) noexcept;

    int const device_;
    ScanSettings const settings_;
    MappedFiles& files_;

    std::mutex mutex_;
    std::condition_variable changed_;          // there is work, or the end
    std::condition_variable done_;             // some work has none left
    std::deque<std::shared_ptr<Work>> queue_;  // with windows that nobody has taken
    std::vector<std::thread> threads_;
    bool closing_{false};
};

}  // namespace rapidsmpf::compute

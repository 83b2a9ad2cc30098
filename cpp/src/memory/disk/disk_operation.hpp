// A write or read in flight: counts its jobs down, keeps the first error, wakes the threads that wait.
//
// Shared by the user's handle and the jobs. The handle holds the DiskSpace and waits before it goes, so the jobs
// need not hold it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/core/statistics.hpp>

#include "memory/disk/disk_block.hpp"

namespace rapidsmpf::detail {

class DiskOperation {
  public:
    // Where the bytes and the seconds of the operation are counted.
    struct Counters {
        Statistics* statistics;
        Statistics::Id bytes;
        Statistics::Id seconds;
    };

    explicit DiskOperation(Counters counters) noexcept : counters_{counters} {}

    // Before the first job runs: how many there are and how many bytes they move. With no jobs it is done.
    void begin(std::size_t jobs, std::size_t bytes);
    // Runs one job's work, unless another one failed already, and counts it.
    void run(std::function<void()> const& work) noexcept;

    [[nodiscard]] bool is_done() const;
    void wait() const noexcept;
    void get() const;
    void on_done(std::function<void()> callback);

    // What is written, in the order of the user's blocks; dropped when the operation fails. For its jobs, and for
    // the handle when it is done.
    std::vector<std::shared_ptr<StoredBlock>> written;
    // What is read; dropped when it is done.
    std::shared_ptr<StoredBlock const> reading;

  private:
    void fail(std::string message, int error_number);
    void finish() noexcept;

    Counters counters_;
    std::size_t bytes_{0};
    std::chrono::steady_clock::time_point start_;
    std::atomic<std::size_t> left_{0};
    std::atomic<bool> failed_{false};
    mutable Mutex mutex_;
    mutable ConditionVariable changed_;
    bool done_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    // Not an exception_ptr: each who waits throws an exception of its own, on its own thread.
    std::string error_ RAPIDSMPF_GUARDED_BY(mutex_);
    int error_number_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::function<void()> callback_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::detail

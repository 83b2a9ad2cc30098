#include "memory/disk/disk_operation.hpp"

#include <exception>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

void DiskOperation::begin(std::size_t jobs, std::size_t bytes) {
    bytes_ = bytes;
    start_ = std::chrono::steady_clock::now();
    left_ = jobs;
    if (jobs == 0) {
        finish();
    }
}

void DiskOperation::run(std::function<void()> const& work) noexcept {
    if (!failed_.load(std::memory_order_relaxed)) {
        try {
            work();
        } catch (SpillError const& error) {
            fail(error.what(), error.error_number());
        } catch (std::exception const& error) {
            // Of the standard library only: no memory.
            fail(std::string{"cannot move bytes between memory and disk: "} + error.what(), 0);
        }
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        finish();
    }
}

void DiskOperation::fail(std::string message, int error_number) {
    MutexLock lock{mutex_};
    if (!failed_) {
        error_ = std::move(message);
        error_number_ = error_number;
        failed_ = true;
    }
}

void DiskOperation::finish() noexcept {
    if (!failed_ && counters_.statistics->enabled()) {
        std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - start_;
        counters_.statistics->add(counters_.bytes, static_cast<double>(bytes_));
        counters_.statistics->add(counters_.seconds, seconds.count());
    }
    // Before it tells the waiters and the callback: they see the space of a failed write free.
    if (failed_) {
        written.clear();
    }
    reading.reset();
    std::function<void()> callback;
    {
        MutexLock lock{mutex_};
        done_ = true;
        callback = std::move(callback_);
        changed_.notify_all();
    }
    if (callback) {
        callback();
    }
}

bool DiskOperation::is_done() const {
    MutexLock lock{mutex_};
    return done_;
}

void DiskOperation::wait() const noexcept {
    UniqueLock lock{mutex_};
    changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return done_; });
}

void DiskOperation::get() const {
    UniqueLock lock{mutex_};
    changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return done_; });
    if (failed_) {
        throw SpillError{error_, error_number_};
    }
}

void DiskOperation::on_done(std::function<void()> callback) {
    {
        MutexLock lock{mutex_};
        if (!done_) {
            callback_ = std::move(callback);
            return;
        }
    }
    callback();
}

}  // namespace rapidsmpf::detail

// Faults that tests put into the I/O of a DiskSpace: errors, short transfers, flipped bits, operations that wait.
//
// Shared between the test and the DiskSpace; all methods are thread-safe. Transfers are counted per kind from
// one on, since the object was made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf {

// What a DiskSpace asks of the operating system.
enum class DiskCall : std::uint8_t { open, allocate, write, read };

class DiskFaults {
  public:
    explicit DiskFaults(std::uint64_t seed = 0);

    // Fails the calls number first, first + 1, ..., first + count - 1 of a kind with an errno.
    void fail(DiskCall call, std::uint64_t first, std::uint64_t count, int error_number);
    // Fails each call of a kind with this probability.
    void fail_randomly(DiskCall call, double probability, int error_number);
    // Every transfer moves at most so many bytes (a multiple of 4096; 0: no bound), as a kernel may choose to.
    void shorten(DiskCall call, std::size_t bytes);
    // Flips one bit of what each read brings, with this probability.
    void corrupt_reads(double probability);
    // Calls of a kind wait from now on until release().
    void hold(DiskCall call);
    void release(DiskCall call);
    // Waits until so many calls of a kind are held at the same time.
    void wait_until_held(DiskCall call, std::size_t calls);
    // No more faults; releases what is held.
    void clear();

    // Calls so far, and those that were failed, shortened or corrupted.
    [[nodiscard]] std::uint64_t calls(DiskCall call) const;
    [[nodiscard]] std::uint64_t injected() const;

    // For DiskSpace. Waits while the kind is held; the errno to fail with, or 0. `bytes` is reduced when the
    // transfer is to be short.
    [[nodiscard]] int before(DiskCall call, std::size_t& bytes);
    [[nodiscard]] int before(DiskCall call);
    void after_read(std::span<std::byte> bytes);

  private:
    struct Kind {
        std::uint64_t calls{0};
        std::uint64_t first{0};
        std::uint64_t end{0};
        int error_number{0};
        double probability{0};
        int random_error{0};
        std::size_t at_most{0};
        bool held{false};
        std::size_t waiting{0};
    };
    [[nodiscard]] Kind& kind(DiskCall call) noexcept RAPIDSMPF_REQUIRES(mutex_) {
        return kinds_[static_cast<std::size_t>(call)];
    }
    [[nodiscard]] bool chance_locked(double probability) RAPIDSMPF_REQUIRES(mutex_);

    mutable Mutex mutex_;
    ConditionVariable changed_;
    std::array<Kind, 4> kinds_ RAPIDSMPF_GUARDED_BY(mutex_);
    double corrupt_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t injected_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::mt19937_64 random_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf

#include "memory/disk/disk_faults.hpp"

#include <algorithm>

namespace rapidsmpf {

DiskFaults::DiskFaults(std::uint64_t seed) : random_{seed} {}

void DiskFaults::fail(DiskCall call, std::uint64_t first, std::uint64_t count, int error_number) {
    MutexLock lock{mutex_};
    auto& entry = kind(call);
    entry.first = first;
    entry.end = first + count;
    entry.error_number = error_number;
}

void DiskFaults::fail_randomly(DiskCall call, double probability, int error_number) {
    MutexLock lock{mutex_};
    kind(call).probability = probability;
    kind(call).random_error = error_number;
}

void DiskFaults::shorten(DiskCall call, std::size_t bytes) {
    MutexLock lock{mutex_};
    kind(call).at_most = bytes;
}

void DiskFaults::corrupt_reads(double probability) {
    MutexLock lock{mutex_};
    corrupt_ = probability;
}

void DiskFaults::hold(DiskCall call) {
    MutexLock lock{mutex_};
    kind(call).held = true;
}

void DiskFaults::release(DiskCall call) {
    MutexLock lock{mutex_};
    kind(call).held = false;
    changed_.notify_all();
}

void DiskFaults::wait_until_held(DiskCall call, std::size_t calls) {
    UniqueLock lock{mutex_};
    changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return kind(call).waiting >= calls; });
}

void DiskFaults::clear() {
    MutexLock lock{mutex_};
    for (auto& entry : kinds_) {
        auto const calls = entry.calls;
        auto const waiting = entry.waiting;
        entry = Kind{};
        entry.calls = calls;
        entry.waiting = waiting;
    }
    corrupt_ = 0;
    changed_.notify_all();
}

std::uint64_t DiskFaults::calls(DiskCall call) const {
    MutexLock lock{mutex_};
    return kinds_[static_cast<std::size_t>(call)].calls;
}

std::uint64_t DiskFaults::injected() const {
    MutexLock lock{mutex_};
    return injected_;
}

bool DiskFaults::chance_locked(double probability) {
    return probability > 0 && std::uniform_real_distribution<double>{0, 1}(random_) < probability;
}

int DiskFaults::before(DiskCall call, std::size_t& bytes) {
    UniqueLock lock{mutex_};
    auto& entry = kind(call);
    auto const number = ++entry.calls;
    if (entry.held) {
        ++entry.waiting;
        changed_.notify_all();
        changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return !entry.held; });
        --entry.waiting;
    }
    if (entry.first <= number && number < entry.end) {
        ++injected_;
        return entry.error_number;
    }
    if (chance_locked(entry.probability)) {
        ++injected_;
        return entry.random_error;
    }
    if (entry.at_most != 0 && bytes > entry.at_most) {
        ++injected_;
        bytes = entry.at_most;
    }
    return 0;
}

int DiskFaults::before(DiskCall call) {
    std::size_t bytes = 0;
    return before(call, bytes);
}

void DiskFaults::after_read(std::span<std::byte> bytes) {
    MutexLock lock{mutex_};
    if (!bytes.empty() && chance_locked(corrupt_)) {
        ++injected_;
        auto const bit = std::uniform_int_distribution<std::size_t>{0, bytes.size() * 8 - 1}(random_);
        bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
}

}  // namespace rapidsmpf

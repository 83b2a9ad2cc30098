#include "memory/budget.hpp"

#include <algorithm>

#include <rapidsmpf/device/host_memory.hpp>

namespace rapidsmpf::detail {

namespace {
// Measuring costs microseconds; what others allocate within this time is seen late.
constexpr std::chrono::milliseconds measurement_age{1};

std::int64_t share(std::int64_t limit, double mark) {
    return static_cast<std::int64_t>(static_cast<double>(limit) * mark);
}
}  // namespace

Budget::Budget(
    Device& device, std::array<std::int64_t, 4> limits, std::array<AvailableFunction, 4> available,
    Marks marks)
    : device_{device}, marks_{marks} {
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
        tiers_[i].limit = limits[i];
        tiers_[i].function = std::move(available[i]);
    }
    auto& own = tier(MemoryType::DEVICE);
    own.resident = own.limit != unlimited && !own.function && device.kind() == DeviceKind::cpu;
    auto& host = tier(MemoryType::HOST);
    if (own.resident && host.limit == unlimited && !host.function) {
        // The same memory under another name.
        host.limit = own.limit;
        host.resident = true;
    }
}

std::int64_t Budget::ask(Tier const& entry) const {
    return entry.function ? entry.function() : unlimited;
}

std::int64_t Budget::in_memory_locked() const {
    return tiers_[0].used + tiers_[1].used + tiers_[2].used;
}

void Budget::measure_if_old_locked() const {
    auto const now = Clock::now();
    if (now - measured_at_ >= measurement_age) {
        auto const high = share(tier(MemoryType::DEVICE).limit, marks_.high);
        measured_ = device::measure_host_memory(device_, high);
        in_buffers_ = in_memory_locked();
        measured_at_ = now;
    }
}

std::int64_t Budget::free_locked(Tier const& entry, std::int64_t said) const {
    auto free = entry.limit == unlimited ? unlimited : entry.limit - entry.used - entry.reserved;
    if (said != unlimited) {
        free = std::min(free, said - entry.reserved);
    }
    if (entry.resident) {
        measure_if_old_locked();
        auto const now = measured_ + (in_memory_locked() - in_buffers_);
        free = std::min(free, entry.limit - now - entry.reserved);
    }
    return free;
}

std::int64_t Budget::available(MemoryType type) const {
    auto const& entry = tier(type);
    auto const said = ask(entry);
    std::lock_guard const lock{mutex_};
    return free_locked(entry, said);
}

Budget::Usage Budget::usage(MemoryType type) const {
    std::lock_guard const lock{mutex_};
    auto const& entry = tier(type);
    return {entry.limit, entry.used, entry.reserved, entry.waiting, entry.peak};
}

std::size_t Budget::reserve(MemoryType type, std::size_t size, WhenFull when_full) {
    auto& entry = tier(type);
    auto const said = ask(entry);
    auto const wanted = static_cast<std::int64_t>(size);
    std::lock_guard const lock{mutex_};
    auto free = free_locked(entry, said);
    if (when_full == WhenFull::refuse && free != unlimited) {
        free -= entry.waiting;
    }
    auto const overbooked = static_cast<std::size_t>(std::max<std::int64_t>(wanted - free, 0));
    if (overbooked == 0 || size == 0 || when_full == WhenFull::overbook) {
        entry.reserved += wanted;
    }
    return overbooked;
}

void Budget::return_reserved(MemoryType type, std::size_t size) {
    std::lock_guard const lock{mutex_};
    tier(type).reserved -= static_cast<std::int64_t>(size);
}

void Budget::add_waiting(MemoryType type, std::int64_t change) {
    std::lock_guard const lock{mutex_};
    tier(type).waiting += change;
}

std::int64_t Budget::account(MemoryType type, std::int64_t change) {
    std::lock_guard const lock{mutex_};
    auto& entry = tier(type);
    entry.used += change;
    return entry.used > entry.peak ? entry.peak = entry.used : 0;
}

std::int64_t Budget::shortage(MemoryType type) const {
    auto const& entry = tier(type);
    auto const said = ask(entry);
    std::lock_guard const lock{mutex_};
    auto const free = free_locked(entry, said);
    if (free == unlimited) {
        return 0;
    }
    auto missing = entry.waiting - free;
    if (entry.limit != unlimited) {
        auto const occupied = entry.limit - free + entry.waiting;
        if (occupied > share(entry.limit, marks_.high)) {
            missing = std::max(missing, occupied - share(entry.limit, marks_.low));
        }
    }
    return std::max<std::int64_t>(missing, 0);
}

bool Budget::under_pressure(MemoryType type) const {
    std::lock_guard const lock{mutex_};
    auto const& entry = tier(type);
    if (entry.waiting > 0) {
        return true;
    }
    if (entry.limit == unlimited) {
        return false;
    }
    auto occupied = entry.used + entry.reserved;
    if (entry.resident) {
        occupied = std::max(occupied, measured_ + (in_memory_locked() - in_buffers_) + entry.reserved);
    }
    return occupied > share(entry.limit, marks_.high);
}

bool Budget::is_measured(MemoryType type) const {
    auto const& entry = tier(type);
    return entry.resident || entry.function;
}

std::int64_t Budget::room_for_others() const {
    std::lock_guard const lock{mutex_};
    auto room = unlimited;
    for (auto const& entry : tiers_) {
        if (entry.function) {
            return 0;
        }
        if (entry.resident) {
            auto const above_mark = entry.limit - share(entry.limit, marks_.high);
            room = std::min(room, free_locked(entry, unlimited) - above_mark);
        }
    }
    return std::max<std::int64_t>(room, 0);
}

std::int64_t Budget::held_by_others() const {
    std::lock_guard const lock{mutex_};
    if (!tiers_[0].resident) {
        return 0;
    }
    measure_if_old_locked();
    return std::max<std::int64_t>(measured_ - in_buffers_, 0);
}

}  // namespace rapidsmpf::detail

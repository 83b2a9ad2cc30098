#include "memory/budget.hpp"

#include <algorithm>

#include <rapidsmpf/device/detail/host_memory.hpp>

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
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        rules_[i].limit = limits[i];
        rules_[i].function = std::move(available[i]);
    }
    auto& own = rules_[static_cast<std::size_t>(MemoryType::DEVICE)];
    own.resident = own.limit != unlimited && !own.function && device.kind() == DeviceKind::cpu;
    auto& host = rules_[static_cast<std::size_t>(MemoryType::HOST)];
    if (own.resident && host.limit == unlimited && !host.function) {
        // The same memory under another name.
        host.limit = own.limit;
        host.resident = true;
    }
}

std::int64_t Budget::ask(Rule const& rule) {
    return rule.function ? rule.function() : unlimited;
}

std::int64_t Budget::in_memory_locked() const {
    return levels_[0].used + levels_[1].used + levels_[2].used;
}

void Budget::measure_if_old_locked() const {
    auto const now = Clock::now();
    if (now - measured_at_ >= measurement_age) {
        auto const use = device::measure_host_memory(device_);
        // The threshold is the limit, not the high-water mark. When rows arrive faster than the disk writes them, memory
        // in use stays above that mark; each spilled block would then be unmapped, and the next one would fault in new pages.
        device::trim_host_memory_above(rule(MemoryType::DEVICE).limit, use);
        measured_ = use.in_use();
        in_buffers_ = in_memory_locked();
        measured_at_ = now;
    }
}

std::int64_t Budget::free_locked(Rule const& rule, Level const& level, std::int64_t reported) const {
    auto free = rule.limit == unlimited ? unlimited : rule.limit - level.used - level.reserved;
    if (reported != unlimited) {
        free = std::min(free, reported - level.reserved);
    }
    if (rule.resident) {
        measure_if_old_locked();
        auto const now = measured_ + (in_memory_locked() - in_buffers_);
        free = std::min(free, rule.limit - now - level.reserved);
    }
    return free;
}

std::int64_t Budget::available(MemoryType type) const {
    auto const reported = ask(rule(type));
    MutexLock const lock{mutex_};
    return free_locked(rule(type), level(type), reported);
}

Budget::Usage Budget::usage(MemoryType type) const {
    MutexLock const lock{mutex_};
    auto const& entry = level(type);
    return {rule(type).limit, entry.used, entry.reserved, entry.waiting, entry.peak};
}

std::size_t Budget::reserve(MemoryType type, std::size_t size, WhenFull when_full) {
    auto const reported = ask(rule(type));
    auto const wanted = static_cast<std::int64_t>(size);
    MutexLock const lock{mutex_};
    auto& entry = level(type);
    auto free = free_locked(rule(type), entry, reported);
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
    MutexLock const lock{mutex_};
    level(type).reserved -= static_cast<std::int64_t>(size);
}

void Budget::add_waiting(MemoryType type, std::int64_t change) {
    MutexLock const lock{mutex_};
    level(type).waiting += change;
}

std::int64_t Budget::account(MemoryType type, std::int64_t change) {
    MutexLock const lock{mutex_};
    auto& entry = level(type);
    entry.used += change;
    return entry.used > entry.peak ? entry.peak = entry.used : 0;
}

std::int64_t Budget::shortage(MemoryType type) const {
    auto const limit = rule(type).limit;
    auto const reported = ask(rule(type));
    MutexLock const lock{mutex_};
    auto const& entry = level(type);
    auto const free = free_locked(rule(type), entry, reported);
    if (free == unlimited) {
        return 0;
    }
    auto missing = entry.waiting - free;
    if (limit != unlimited) {
        auto const occupied = limit - free + entry.waiting;
        if (occupied > share(limit, marks_.high)) {
            missing = std::max(missing, occupied - share(limit, marks_.low));
        }
    }
    return std::max<std::int64_t>(missing, 0);
}

bool Budget::under_pressure(MemoryType type) const {
    MutexLock const lock{mutex_};
    auto const& entry = level(type);
    if (entry.waiting > 0) {
        return true;
    }
    if (rule(type).limit == unlimited) {
        return false;
    }
    auto occupied = entry.used + entry.reserved;
    if (rule(type).resident) {
        occupied = std::max(occupied, measured_ + (in_memory_locked() - in_buffers_) + entry.reserved);
    }
    return occupied > share(rule(type).limit, marks_.high);
}

bool Budget::is_measured(MemoryType type) const {
    return rule(type).resident || rule(type).function;
}

std::int64_t Budget::room_for_others() const {
    MutexLock const lock{mutex_};
    auto room = unlimited;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
        auto const& rule = rules_[i];
        if (rule.function) {
            return 0;
        }
        if (rule.resident) {
            auto const above_mark = rule.limit - share(rule.limit, marks_.high);
            room = std::min(room, free_locked(rule, levels_[i], unlimited) - above_mark);
        }
    }
    return std::max<std::int64_t>(room, 0);
}

std::int64_t Budget::held_by_others() const {
    if (!rules_[0].resident) {
        return 0;
    }
    MutexLock const lock{mutex_};
    measure_if_old_locked();
    return std::max<std::int64_t>(measured_ - in_buffers_, 0);
}

}  // namespace rapidsmpf::detail

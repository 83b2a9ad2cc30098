#include <rapidsmpf/memory/scoped_memory_record.hpp>

#include <algorithm>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

void expect_one_allocator(AllocType type) {
    RAPIDSMPF_EXPECTS(
        type == AllocType::PRIMARY || type == AllocType::FALLBACK,
        "an allocation is recorded as PRIMARY or FALLBACK: ALL is their sum", std::invalid_argument);
}

}  // namespace

void ScopedMemoryRecord::record_allocation(AllocType type, std::int64_t bytes) {
    expect_one_allocator(type);
    for (auto const which : {type, AllocType::ALL}) {
        auto& tally = of(which);
        ++tally.allocations;
        ++tally.live;
        tally.total += bytes;
        tally.current += bytes;
        tally.peak = std::max(tally.peak, tally.current);
    }
}

void ScopedMemoryRecord::record_deallocation(AllocType type, std::int64_t bytes) {
    expect_one_allocator(type);
    for (auto const which : {type, AllocType::ALL}) {
        auto& tally = of(which);
        --tally.live;
        tally.current -= bytes;
    }
}

ScopedMemoryRecord& ScopedMemoryRecord::add_subscope(ScopedMemoryRecord const& subscope) noexcept {
    for (auto const type : {AllocType::PRIMARY, AllocType::FALLBACK, AllocType::ALL}) {
        auto& tally = of(type);
        auto const& inner = subscope.of(type);
        tally.peak = std::max(tally.peak, tally.current + inner.peak);
        tally.allocations += inner.allocations;
        tally.live += inner.live;
        tally.current += inner.current;
        tally.total += inner.total;
    }
    return *this;
}

ScopedMemoryRecord& ScopedMemoryRecord::add_scope(ScopedMemoryRecord const& scope) noexcept {
    for (auto const type : {AllocType::PRIMARY, AllocType::FALLBACK, AllocType::ALL}) {
        auto& tally = of(type);
        auto const& other = scope.of(type);
        tally.peak = std::max(tally.peak, other.peak);
        tally.allocations += other.allocations;
        tally.live += other.live;
        tally.current += other.current;
        tally.total += other.total;
    }
    return *this;
}

}  // namespace rapidsmpf

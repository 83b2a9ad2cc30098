// How much memory was allocated, by which allocator, and the most that was in use at once.
//
// A plain value: updates from several threads need a mutex (RmmResourceAdaptor has one). Of the two
// allocators, PRIMARY is tried first and FALLBACK serves what it cannot; ALL is both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rapidsmpf {

enum class AllocType : std::uint8_t { PRIMARY = 0, FALLBACK = 1, ALL = 2 };

class ScopedMemoryRecord {
  public:
    // Allocations made, and those of them that are still there.
    [[nodiscard]] std::int64_t num_total_allocs(AllocType type = AllocType::ALL) const noexcept {
        return of(type).allocations;
    }
    [[nodiscard]] std::int64_t num_current_allocs(AllocType type = AllocType::ALL) const noexcept {
        return of(type).live;
    }
    // Bytes in use, allocated in all, and the most in use at once. The peak of ALL is not the sum of the others':
    // they need not have been reached together.
    [[nodiscard]] std::int64_t current(AllocType type = AllocType::ALL) const noexcept {
        return of(type).current;
    }
    [[nodiscard]] std::int64_t total(AllocType type = AllocType::ALL) const noexcept {
        return of(type).total;
    }
    [[nodiscard]] std::int64_t peak(AllocType type = AllocType::ALL) const noexcept { return of(type).peak; }

    // Both throw std::invalid_argument when `type` is ALL: one allocator has served a block.
    void record_allocation(AllocType type, std::int64_t bytes);
    void record_deallocation(AllocType type, std::int64_t bytes);

    // Adds a scope that was open within this one: its peak stood on what this one held.
    ScopedMemoryRecord& add_subscope(ScopedMemoryRecord const& subscope) noexcept;
    // Adds another run of the same scope: the peak is the larger of the two.
    ScopedMemoryRecord& add_scope(ScopedMemoryRecord const& scope) noexcept;

    friend bool operator==(ScopedMemoryRecord const&, ScopedMemoryRecord const&) noexcept = default;

  private:
    friend class RmmResourceAdaptor;  // makes one of its own counters
    struct Tally {
        std::int64_t allocations{0};
        std::int64_t live{0};
        std::int64_t current{0};
        std::int64_t total{0};
        std::int64_t peak{0};
        friend bool operator==(Tally const&, Tally const&) noexcept = default;
    };
    [[nodiscard]] Tally const& of(AllocType type) const noexcept {
        return tallies_[static_cast<std::size_t>(type)];
    }
    [[nodiscard]] Tally& of(AllocType type) noexcept { return tallies_[static_cast<std::size_t>(type)]; }

    std::array<Tally, 3> tallies_;
};

}  // namespace rapidsmpf

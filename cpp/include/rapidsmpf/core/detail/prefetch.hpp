// Prefetching that GCC keeps. A prefetch is no side effect to it: functions that do nothing else are "pure", and where it sees
// their bodies it deletes the calls (FixedConcat::prefetch_start() was lost so, and a tenth of a shuffle of small chunks with it).
#pragma once

namespace rapidsmpf {

// The caches that a line is brought into: all, or those behind the first.
enum class PrefetchTo { first_cache, second_cache };

template <PrefetchTo to = PrefetchTo::first_cache>
inline void prefetch_to_read(void const* line) noexcept {
    __builtin_prefetch(line, 0, to == PrefetchTo::first_cache ? 3 : 2);
    __asm__ volatile("");  // a side effect, of no instruction
}

inline void prefetch_to_write(void const* line) noexcept {
    __builtin_prefetch(line, 1);
    __asm__ volatile("");
}

}  // namespace rapidsmpf

// Copies between host buffers of what will not be read again soon: larger than the caches, or for another process.
//
// Two things that memcpy does only for much larger blocks (tens of MiB): it writes past the caches, so that no line is read
// just to be overwritten, and it goes through several pages at once, since a processor's prefetcher stops at the end of
// each. Pieces of 16 KiB and more are copied 1.5 to 1.9 times as fast so when neither end is in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__) && defined(__x86_64__)
#define RAPIDSMPF_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace rapidsmpf::device {

// Shorter copies gain nothing.
inline constexpr std::size_t stream_copy_threshold = 16UL << 10U;

// Makes what was written by streaming stores visible to whoever is told of it afterwards. stream_copy() does so itself.
inline void finish_streaming() noexcept {
#if defined(RAPIDSMPF_STREAMING_STORES)
    _mm_sfence();
#endif
}

// Asks for `size` bytes that will be read in no particular order, a line of each page in turn.
inline void prefetch(std::byte const* from, std::size_t size) noexcept {
    constexpr std::size_t page = 4096;
    constexpr std::size_t line = 64;
    for (std::size_t at = 0; at < page; at += line) {
        for (std::size_t begin = 0; begin + at < size; begin += page) {
            __builtin_prefetch(from + begin + at, 0, 2);
        }
    }
}

// As memcpy.
void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept;

// Writes a value past the caches, where the processor can.
template <typename T>
void stream_store(std::byte* to, T value) noexcept {
#if defined(RAPIDSMPF_STREAMING_STORES)
    if constexpr (sizeof(T) == 4) {
        std::int32_t word;
        std::memcpy(&word, &value, sizeof(word));
        _mm_stream_si32(reinterpret_cast<int*>(to), word);
        return;
    } else if constexpr (sizeof(T) == 8) {
        long long word;
        std::memcpy(&word, &value, sizeof(word));
        _mm_stream_si64(reinterpret_cast<long long*>(to), word);
        return;
    }
#endif
    std::memcpy(to, &value, sizeof(T));
}

}  // namespace rapidsmpf::device

// Copies between host buffers of what will not be read again soon: larger than the caches, or for another process.
//
// Two things that memcpy does only for much larger blocks (tens of MiB): it writes past the caches, so that no line is read
// just to be overwritten, and it goes through several pages at once, since a processor's prefetcher stops at the end of
// each. Pieces of 16 KiB and more are copied 1.5 to 1.9 times as fast so when neither end is in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rapidsmpf/core/detail/prefetch.hpp>

#if defined(__SSE2__) && defined(__x86_64__)
#define RAPIDSMPF_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace rapidsmpf::device {

inline constexpr std::size_t cache_line = 64;

// Shorter copies gain nothing.
inline constexpr std::size_t stream_copy_threshold = 16UL << 10U;

// Makes what was written by streaming stores visible to threads that are told of it afterwards. stream_copy() does so itself.
inline void finish_streaming() noexcept {
#if defined(RAPIDSMPF_STREAMING_STORES)
    _mm_sfence();
#endif
}

// Asks for `size` bytes that will be read in no particular order, a line of each page in turn.
inline void prefetch(std::byte const* from, std::size_t size) noexcept {
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; at < page; at += cache_line) {
        for (std::size_t begin = 0; begin + at < size; begin += page) {
            prefetch_to_read<PrefetchTo::second_cache>(from + begin + at);
        }
    }
}

// As memcpy.
void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept;

// Copies whole lines past the caches, one of many pieces of something larger than they are: shorter ones gain then, too. `to`
// begins a line. finish_streaming() has to follow the last. Who knows what comes next prefetches the first stream_read_ahead bytes.
inline constexpr std::size_t stream_read_ahead = 2048;
void stream_lines(std::byte* to, std::byte const* from, std::size_t size) noexcept;

// Copies a line past the caches. `to` begins one. finish_streaming() has to follow the last.
inline void stream_line(std::byte* to, std::byte const* from) noexcept {
#if defined(RAPIDSMPF_STREAMING_STORES)
    auto const* const in = reinterpret_cast<__m128i const*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    auto const a = _mm_loadu_si128(in);
    auto const b = _mm_loadu_si128(in + 1);
    auto const c = _mm_loadu_si128(in + 2);
    auto const d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
#else
    std::memcpy(to, from, cache_line);
#endif
}

// Whether stream_gathered_line() exists for values of this type.
#if defined(RAPIDSMPF_STREAMING_STORES)
template <typename T>
inline constexpr bool streams_gathered_lines =
    sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16 || sizeof(T) == 32;
#else
template <typename T>
inline constexpr bool streams_gathered_lines = false;
#endif

// Writes the values at from[rows[0]], from[rows[1]], ... to the line at `to`, past the caches. `to` begins a line.
template <typename T>
    requires streams_gathered_lines<T>
void stream_gathered_line(std::byte* to, std::byte const* from, std::uint16_t const* rows) noexcept {
#if defined(RAPIDSMPF_STREAMING_STORES)
    auto const at = [from, rows](std::size_t k) { return from + rows[k] * sizeof(T); };
    // The values come together in registers: through memory, the wide load would wait for the narrow stores.
    for (std::size_t i = 0; i < 4; ++i) {
        __m128i part;
        if constexpr (sizeof(T) == 4) {
            auto const load = [&](std::size_t k) { return _mm_loadu_si32(at(4 * i + k)); };
            part = _mm_unpacklo_epi64(
                _mm_unpacklo_epi32(load(0), load(1)), _mm_unpacklo_epi32(load(2), load(3)));
        } else if constexpr (sizeof(T) == 8) {
            auto const load = [&](std::size_t k) { return _mm_loadu_si64(at(2 * i + k)); };
            part = _mm_unpacklo_epi64(load(0), load(1));
        } else {
            constexpr std::size_t parts = sizeof(T) / 16;
            part = _mm_loadu_si128(reinterpret_cast<__m128i const*>(at(i / parts) + i % parts * 16));
        }
        _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, part);
    }
#endif
}

}  // namespace rapidsmpf::device

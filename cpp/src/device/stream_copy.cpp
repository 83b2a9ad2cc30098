#include <rapidsmpf/device/stream_copy.hpp>

namespace rapidsmpf::device {

#if defined(RAPIDSMPF_STREAMING_STORES)

namespace {

constexpr std::size_t page = 4096;
constexpr auto line = cache_line;
constexpr std::size_t pages_at_once = 4;
// Below, the lines at both ends of a piece that are written in part cost what the others save.
constexpr std::size_t shortest_piece = 512;
constexpr std::size_t read_ahead = stream_read_ahead;

void copy_line(std::byte* to, std::byte const* from) noexcept {
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
}

}  // namespace

void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    if (size < stream_copy_threshold) {
        std::memcpy(to, from, size);
        return;
    }
    stream_copy_piece(to, from, size);
    finish_streaming();
}

void stream_copy_piece(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    if (size < shortest_piece) {
        std::memcpy(to, from, size);
        return;
    }
    auto const head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::memcpy(to, from, head);
    auto at = head;
    for (; size - at >= pages_at_once * page; at += pages_at_once * page) {
        for (std::size_t i = 0; i < page; i += line) {
            for (std::size_t k = 0; k < pages_at_once; ++k) {
                copy_line(to + at + k * page + i, from + at + k * page + i);
            }
        }
    }
    for (; size - at >= line; at += line) {
        // Also beyond the end: the next piece often follows.
        __builtin_prefetch(from + at + read_ahead, 0, 2);
        copy_line(to + at, from + at);
    }
    std::memcpy(to + at, from + at, size - at);
}

#else

void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    std::memcpy(to, from, size);
}

void stream_copy_piece(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    std::memcpy(to, from, size);
}

#endif

}  // namespace rapidsmpf::device

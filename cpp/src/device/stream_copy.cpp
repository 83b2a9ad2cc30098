#include <rapidsmpf/device/detail/stream_copy.hpp>

namespace rapidsmpf::device {

#if defined(RAPIDSMPF_STREAMING_STORES)

namespace {

constexpr std::size_t page = 4096;
constexpr auto line = cache_line;
constexpr std::size_t pages_at_once = 4;

}  // namespace

void stream_lines(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    std::size_t at = 0;
    for (; size - at >= pages_at_once * page; at += pages_at_once * page) {
        for (std::size_t i = 0; i < page; i += line) {
            for (std::size_t k = 0; k < pages_at_once; ++k) {
                stream_line(to + at + k * page + i, from + at + k * page + i);
            }
        }
    }
    for (; size - at >= line; at += line) {
        // Also beyond the end: the next piece often follows.
        __builtin_prefetch(from + at + stream_read_ahead, 0, 2);
        stream_line(to + at, from + at);
    }
}

void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    if (size < stream_copy_threshold) {
        std::memcpy(to, from, size);
        return;
    }
    // The lines at both ends are written in part.
    auto const head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    auto const whole = (size - head) / line * line;
    std::memcpy(to, from, head);
    stream_lines(to + head, from + head, whole);
    std::memcpy(to + head + whole, from + head + whole, size - head - whole);
    finish_streaming();
}

#else

void stream_copy(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    std::memcpy(to, from, size);
}

void stream_lines(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    std::memcpy(to, from, size);
}

#endif

}  // namespace rapidsmpf::device

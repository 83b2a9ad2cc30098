// The layout of a plan's arrays in one block of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rapidsmpf::pages {

// Appends an array to a block that has `bytes` so far. Returns the array's offset, a multiple of 256.
inline std::size_t append_array(std::size_t& bytes, std::size_t array_bytes) {
    auto const at = bytes;
    bytes += (array_bytes + 255) / 256 * 256;
    return at;
}

// Of all chunks together.
template <typename Chunk>
std::uint64_t bytes_of(std::span<Chunk const> chunks) {
    std::uint64_t bytes = 0;
    for (auto const& chunk : chunks) {
        bytes += chunk.bytes;
    }
    return bytes;
}

// Counters of a plan have 32 bits.
inline std::uint32_t limited_count(std::uint64_t n) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(n, 0x7fffffff));
}

// How many pages there is room for: writers make pages of 4 KiB on average, or larger ones.
inline std::uint32_t most_pages(std::size_t chunks, std::uint64_t bytes) {
    return limited_count(16 * chunks + bytes / 4096);
}

}  // namespace rapidsmpf::pages

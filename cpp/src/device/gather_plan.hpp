// Who copies which bytes in a gather copy: plain arithmetic, the same for the kernel and for its tests on the host.
//
// Each piece is divided into chunks, and a warp copies a chunk. Chunks but the first begin where the destination is
// aligned to 16 bytes. Within a chunk whole 16-byte vectors are written; where the source is not aligned to the
// destination, a vector is joined from two aligned ones. Only the few bytes at the ends of a piece, where that
// would read outside of it, are copied one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define RAPIDSMPF_GATHER_FUNCTION __host__ __device__ inline
#else
#define RAPIDSMPF_GATHER_FUNCTION inline
#endif

namespace rapidsmpf::detail {

inline constexpr std::uint32_t vector_bytes = 16;
inline constexpr std::uint64_t min_chunk_bytes = 2048;
inline constexpr std::uint64_t max_chunk_bytes = 32768;

// Bytes before the first aligned one of the destination.
RAPIDSMPF_GATHER_FUNCTION std::uint64_t head_bytes(std::uint64_t destination, std::uint64_t bytes) {
    auto const head = (vector_bytes - destination % vector_bytes) % vector_bytes;
    return head < bytes ? head : bytes;
}

RAPIDSMPF_GATHER_FUNCTION std::uint64_t num_chunks(
    std::uint64_t destination, std::uint64_t bytes, std::uint64_t chunk_bytes) {
    auto const body = bytes - head_bytes(destination, bytes);
    auto const chunks = (body + chunk_bytes - 1) / chunk_bytes;
    return bytes == 0 ? 0 : chunks == 0 ? 1 : chunks;
}

// What one warp copies, as positions within the piece: [begin, vectors_begin) and [vectors_end, end) byte by byte,
// what lies between as vectors. The vector at position `at` is made of the bytes from source + at - shift on.
struct ChunkCopy {
    std::uint64_t begin;
    std::uint64_t vectors_begin;
    std::uint64_t vectors_end;
    std::uint64_t end;
    std::uint32_t shift;
};

RAPIDSMPF_GATHER_FUNCTION ChunkCopy plan_chunk(
    std::uint64_t source, std::uint64_t destination, std::uint64_t bytes, std::uint64_t chunk,
    std::uint64_t chunk_bytes) {
    auto const head = head_bytes(destination, bytes);
    ChunkCopy copy{};
    copy.begin = chunk == 0 ? 0 : head + chunk * chunk_bytes;
    auto const limit = head + (chunk + 1) * chunk_bytes;
    copy.end = limit < bytes ? limit : bytes;
    copy.shift = static_cast<std::uint32_t>((source + head) % vector_bytes);
    copy.vectors_begin = chunk == 0 ? head : copy.begin;
    copy.vectors_end = copy.end - (copy.end - head) % vector_bytes;
    if (copy.shift != 0) {
        if (copy.vectors_begin < copy.shift) {
            copy.vectors_begin += vector_bytes;
        }
        // The second aligned vector of the last one ends at vectors_end + 16 - shift.
        while (copy.vectors_end > copy.vectors_begin
               && copy.vectors_end + vector_bytes - copy.shift > bytes) {
            copy.vectors_end -= vector_bytes;
        }
    }
    if (copy.vectors_end <= copy.vectors_begin) {
        copy.vectors_begin = copy.vectors_end = copy.end;
    }
    return copy;
}

// Of ascending `firsts` (the first is 0), the index of the last that is not above `chunk`.
RAPIDSMPF_GATHER_FUNCTION std::uint32_t find_piece(
    std::uint32_t const* firsts, std::uint32_t count, std::uint32_t chunk) {
    std::uint32_t low = 0;
    std::uint32_t high = count;
    while (high - low > 1) {
        auto const middle = low + (high - low) / 2;
        if (firsts[middle] <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Four words out of the eight of two neighbouring vectors, from byte `words` * 4 + `bits` / 8 on.
template <int words>
RAPIDSMPF_GATHER_FUNCTION void shift_words(
    std::uint32_t const (&from)[8], std::uint32_t bits, std::uint32_t (&to)[4]) {
    for (int i = 0; i < 4; ++i) {
        auto const both = (static_cast<std::uint64_t>(from[words + i + 1]) << 32U) | from[words + i];
        to[i] = static_cast<std::uint32_t>(both >> bits);
    }
}

// Small enough to keep all warps of a GPU busy with little to do, large enough for long runs of vectors.
RAPIDSMPF_GATHER_FUNCTION std::uint64_t choose_chunk_bytes(std::uint64_t total_bytes, std::uint64_t warps) {
    auto chunk = min_chunk_bytes;
    while (chunk < max_chunk_bytes && chunk * warps < total_bytes) {
        chunk *= 2;
    }
    return chunk;
}

}  // namespace rapidsmpf::detail

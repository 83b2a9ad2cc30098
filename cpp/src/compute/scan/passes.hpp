// What the threads that decode take at a time: passes of neighbouring row groups. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rapidsmpf::compute {

// A row group that is to be read.
struct RowGroupSize {
    std::size_t file{0};
    std::int32_t row_group{0};
    std::int64_t rows{0};
    std::int64_t decoded_bytes{0};
    // Files of one schema have one number: a pass may hold row groups of several of them.
    std::size_t schema{0};
};

// Row groups begin to end - 1 of the list.
struct Pass {
    std::size_t begin{0};
    std::size_t end{0};
    std::int64_t rows{0};
    friend bool operator==(Pass const&, Pass const&) noexcept = default;
};

// Divides the list into passes of about the same size, each of one row group at least and otherwise of no more rows and bytes
// than given. No pass is without rows.
[[nodiscard]] std::vector<Pass> make_passes(
    std::span<RowGroupSize const> row_groups, std::size_t max_rows, std::size_t max_bytes);

// Splits the first pass into smaller ones, of about `edge_rows` rows, then of twice as many and so on, and the last pass in
// reverse: decoding waits for the first pass to be read, and nothing is left to read while the last is decoded.
[[nodiscard]] std::vector<Pass> with_small_edges(
    std::span<RowGroupSize const> row_groups, std::vector<Pass> passes, std::size_t edge_rows);

// ---- Where the compressed bytes of a pass lie on the device

// A column chunk in its file.
struct ChunkRange {
    std::size_t file{0};
    std::uint64_t offset{0};
    std::size_t bytes{0};
};

// Where extents begin on the device, and how many bytes follow each that a decoder may read.
inline constexpr std::size_t extent_alignment = 256;
inline constexpr std::size_t extent_padding = 64;

// What a column chunk by itself takes on the device.
[[nodiscard]] constexpr std::size_t with_padding(std::size_t bytes) {
    return (bytes + extent_padding + extent_alignment - 1) / extent_alignment * extent_alignment;
}

// Bytes of a file that are copied in one piece.
struct Extent {
    std::size_t file{0};
    std::uint64_t offset{0};
    std::size_t bytes{0};
    std::size_t place{0};  // in the pass's buffer
};

struct PassLayout {
    std::vector<Extent> extents;      // by file and offset
    std::vector<std::size_t> places;  // of the chunks in the buffer, in the order given
    std::size_t bytes{0};             // of the buffer
};

// Chunks that lie side by side in a file are one extent. Extents begin at multiples of 256 bytes and have some bytes after
// them that a decoder may read.
[[nodiscard]] PassLayout lay_out(std::span<ChunkRange const> chunks);

}  // namespace rapidsmpf::compute

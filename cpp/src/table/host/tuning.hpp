// The sizes at which partitioning and concatenating on a CPU change their way.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapidsmpf::detail::tuning {

// Packed tables of this size or more are written past the caches.
inline constexpr std::size_t smallest_streamed_pack = std::size_t{1} << 16U;
// Of these, shorter runs of rows fill too few whole cache lines and are written through the caches.
inline constexpr std::int64_t shortest_streamed_run = 24;
// With fewer partitions the rows of each lie so close together that the processor prefetches them by itself.
inline constexpr std::size_t fewest_prefetched_partitions = 5;

// Up to so many partitions rows are sorted by a pass of AVX-512 compression for each; counting is faster from there on.
inline constexpr std::size_t most_compressed_partitions = 32;

// Tables of fixed width without nulls are written part by part up to this size, which stays in the second cache,
inline constexpr std::size_t largest_indexed_table = std::size_t{1} << 20U;
// and past the caches where parts are larger than this on average,
inline constexpr std::size_t largest_cached_part = std::size_t{8} << 10U;
// for tables up to this size.
inline constexpr std::size_t largest_streamed_table = std::size_t{256} << 10U;

// The same line by line (line_scatter.hpp): for so many partitions, with so many rows for each on average.
inline constexpr std::size_t fewest_scattered_partitions = 8;
inline constexpr std::size_t most_scattered_partitions = 8192;
inline constexpr std::int64_t fewest_scattered_rows = 8;
// Columns of one width go together: so many at most, and as long as their lines take at most this much of the second cache.
inline constexpr std::size_t most_columns_together = 4;
inline constexpr std::size_t most_bytes_of_lines = std::size_t{512} << 10U;

// Tables of this size or more are concatenated past the caches.
inline constexpr std::size_t smallest_streamed_concat = std::size_t{2} << 20U;
// At most so many parts ahead are prefetched.
inline constexpr std::size_t most_parts_ahead = 6;

}  // namespace rapidsmpf::detail::tuning

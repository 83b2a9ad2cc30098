// The sizes at which partitioning and concatenating on a CPU change their way, and what was measured for each.
//
// Unless another record is named: a virtual Xeon (Sapphire Rapids, 2 cores, AVX-512), ways in turns in one process, lower
// quartile of 15 rounds, columns of 8 bytes. Partitioning is about half of the processor time of a shuffle from table to table, so a
// way that saves less than a fifth of it saves less than a tenth of the shuffle, and is not worth its code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rapidsmpf::detail::tuning {

// Packed tables of this size or more are written past the caches: they are not found there by their reader. Copies of 16 KiB and
// more are 1.5 to 1.9 times as fast so (device/detail/stream_copy.hpp).
inline constexpr std::size_t smallest_streamed_pack = std::size_t{1} << 16U;
// Of these, shorter runs of rows fill too few whole cache lines (24 rows of 8 bytes: 3) and are written through the caches.
inline constexpr std::int64_t shortest_streamed_run = 24;
// With fewer partitions the rows of each are so close together that the processor prefetches them by itself.
inline constexpr std::size_t fewest_prefetched_partitions = 5;

// Up to so many partitions rows are sorted by a pass of AVX-512 compression for each, then by counting. 65,536 rows, in us:
//   partitions        2    4    8   16   24   32
//   compression       8   15   24   48   75   99
//   counting        118   97   91   92   93   93
inline constexpr std::size_t most_compressed_partitions = 32;

// Tables of fixed width without nulls are written part by part up to this size, which stays in the second cache, with parts
// of at most this size on average. In us, beside the PackWriter:
//   4 columns, 16 KiB, partitions   2     4     8    16    64   256  1024
//   part by part                  1.6   1.9   2.5   3.8    11    44   138
//   PackWriter                    2.1   2.6   3.6   5.7    18    69   257
//   1 column, 64 KiB: 1.02 to 1.06 times as fast up to 16 partitions, 1.12 with 64, 2.0 with 1,024; with parts above 8 KiB the PackWriter is
//   as fast or faster (4 columns, 256 KiB, 2 partitions: 16 beside 19).
// Writing such parts past the caches saved 8 to 12 % for tables of 64 KiB in 2 or 4 partitions and nothing from 256 KiB on: it went.
inline constexpr std::size_t largest_indexed_table = std::size_t{1} << 20U;
inline constexpr std::size_t largest_indexed_part = std::size_t{8} << 10U;

// The same line by line (line_scatter.hpp): for so many partitions, with so many rows for each on average. In us, 16 MiB:
//   partitions                        2      4      8     16     64    256   1024
//   4 columns, line by line        3170   2547   2517   2711   2792   3219   4425
//   4 columns, PackWriter          1807   1650   2138   3060   4478   6401   7624
//   1 column, line by line         8953   7732   7643   7433   7164   7209   7829
//   1 column, PackWriter           3357   3812   4879   6060   8265   9732  10382
// By themselves (bench_table_partition, 8 MiB a column, with allocation) line by line takes so much of the PackWriter's time:
//   partitions      8     12     16     20     24     32
//   1 column     1.67   1.57   1.40   1.27   1.18   1.06
//   2 columns    0.97   0.88   0.88   0.89   0.87   0.85
//   4 columns    0.90   0.84   0.80   0.80   0.78   0.75
// because the partition of a row is looked up once for columns of one width. Without AVX-512 the PackWriter takes 1 ns more for
// each row. Shuffles of tables in 100 partitions a rank are 1.4 times as fast line by line (shuffle_table_quiet_cpu.json). With
// fewer rows for each partition hardly any line is full.
inline constexpr std::size_t fewest_scattered_partitions = 8;
inline constexpr std::size_t fewest_partitions_of_single_columns = 32;  // where hardly any two have one width
inline constexpr std::size_t most_scattered_partitions = 8192;
inline constexpr std::int64_t fewest_scattered_rows = 8;
// Columns of one width go together, since the partition of a row is looked up once for all: so many at most, and as long as
// their lines take at most this much of the second cache.
inline constexpr std::size_t most_columns_together = 4;
inline constexpr std::size_t most_bytes_of_lines = std::size_t{512} << 10U;

// Tables of this size or more, that of a second cache, are concatenated past the caches.
inline constexpr std::size_t smallest_streamed_concat = std::size_t{2} << 20U;
// At most so many parts ahead are prefetched.
inline constexpr std::size_t most_parts_ahead = 6;

}  // namespace rapidsmpf::detail::tuning

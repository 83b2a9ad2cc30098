#include "table/host/block_sort.hpp"

#include <algorithm>

#include "table/host/scratch.hpp"
#include "table/host/tuning.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define RAPIDSMPF_COMPRESS_ROWS 1
#include <immintrin.h>

#include <rapidsmpf/core/detail/align.hpp>
#endif

namespace rapidsmpf::detail {

namespace {

bool can_compress() noexcept {
#if defined(RAPIDSMPF_COMPRESS_ROWS)
    return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0;
#else
    return false;
#endif
}

}  // namespace

BlockSort::BlockSort(std::size_t num_partitions, SortBy by)
    : num_partitions_{num_partitions},
      compresses_{
          by == SortBy::fastest && num_partitions <= tuning::most_compressed_partitions && can_compress()} {}

void BlockSort::sort(std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends) {
    if (compresses_) {
        compress(partitions, rows, ends);
    } else {
        count_and_place(partitions, rows, ends);
    }
}

void BlockSort::count_and_place(
    std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends) {
    std::fill_n(ends, num_partitions_, 0);
    // Counting also numbers the rows of each partition, so that placing them depends on nothing.
    Scratch<std::uint16_t> const scratch{partitions.size()};
    auto* const numbers = scratch.data();
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        numbers[i] = static_cast<std::uint16_t>(ends[partitions[i]]++);
    }
    begins_.resize(num_partitions_);
    std::uint32_t end{0};
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        begins_[p] = end;
        end += ends[p];
        ends[p] = end;
    }
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        rows[begins_[partitions[i]] + numbers[i]] = static_cast<std::uint16_t>(i);
    }
}

#if defined(RAPIDSMPF_COMPRESS_ROWS)

// 32 rows at a time, partition by partition: the processor packs the numbers of those that belong to it. With few
// partitions several times as fast as counting, which takes some cycles a row for each of its two passes.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2"))) void BlockSort::compress(
    std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends) {
    constexpr std::size_t step = overrun;
    // Rows behind the last one belong to no partition.
    auto const padded = round_up(partitions.size(), step);
    Scratch<std::uint16_t> const scratch{padded};
    auto* const narrow = scratch.data();
    std::size_t i = 0;
    for (; i + 16 <= partitions.size(); i += 16) {
        auto const wide = _mm512_loadu_si512(partitions.data() + i);
        // With a mask that lets everything through: g++ 12 takes the plain form's undefined register for a mistake.
        _mm256_storeu_si256(
            reinterpret_cast<__m256i*>(narrow + i), _mm512_maskz_cvtepi32_epi16(0xFFFF, wide));
    }
    for (; i < padded; ++i) {
        narrow[i] = i < partitions.size() ? static_cast<std::uint16_t>(partitions[i]) : UINT16_MAX;
    }
    auto* at = rows;
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        auto const wanted = _mm512_set1_epi16(static_cast<short>(p));
        auto numbers = _mm512_set_epi16(
            31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7,
            6, 5, 4, 3, 2, 1, 0);
        for (i = 0; i < padded; i += step) {
            auto const is_here = _mm512_cmpeq_epi16_mask(_mm512_loadu_si512(narrow + i), wanted);
            _mm512_storeu_si512(at, _mm512_maskz_compress_epi16(is_here, numbers));
            at += __builtin_popcount(is_here);
            numbers = _mm512_add_epi16(numbers, _mm512_set1_epi16(static_cast<short>(step)));
        }
        ends[p] = static_cast<std::uint32_t>(at - rows);
    }
}

#else

void BlockSort::compress(
    std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends) {
    count_and_place(partitions, rows, ends);
}

#endif

}  // namespace rapidsmpf::detail

// Puts the rows of one block in the order of their partitions: a stable counting sort of at most max_block_rows numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rapidsmpf::detail {

// The fastest way depends on the processor; counting is possible on all.
enum class SortBy : std::uint8_t { fastest, counting };

class BlockSort {
  public:
    // sort() may write this many more numbers behind the last row.
    static constexpr std::size_t overrun = 32;

    explicit BlockSort(std::size_t num_partitions, SortBy by = SortBy::fastest);

    // rows: room for partitions.size() + overrun numbers; gets the positions in `partitions`, by partition.
    // ends: room for num_partitions numbers; gets where the rows of each partition end.
    void sort(std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends);

  private:
    void count_and_place(std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends);
    void compress(std::span<std::uint32_t const> partitions, std::uint16_t* rows, std::uint32_t* ends);

    std::size_t num_partitions_;
    bool compresses_;
    std::vector<std::uint32_t> begins_;
};

}  // namespace rapidsmpf::detail

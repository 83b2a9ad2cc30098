#include "table/host/block_sort.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::detail {
namespace {

class BlockSortBy : public testing::TestWithParam<SortBy> {};
INSTANTIATE_TEST_SUITE_P(Ways, BlockSortBy, testing::Values(SortBy::fastest, SortBy::counting));

// Several blocks with one sorter, as a table has them: the last ones shorter than those before.
TEST_P(BlockSortBy, IsStable) {
    std::mt19937 random{7};
    for (std::size_t const num_partitions : {1, 2, 3, 20, 32, 33, 200, 5'000}) {
        BlockSort sorter{num_partitions, GetParam()};
        for (std::size_t const num_rows : {65'536, 8'192, 1'000, 33, 32, 31, 16, 1, 0}) {
            std::vector<std::uint32_t> partitions(num_rows);
            for (auto& partition : partitions) {
                partition = static_cast<std::uint32_t>(random() % num_partitions);
            }
            std::vector<std::uint16_t> expected(num_rows);
            std::iota(expected.begin(), expected.end(), std::uint16_t{0});
            std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) {
                return partitions[a] < partitions[b];
            });
            std::vector<std::uint16_t> rows(num_rows + BlockSort::overrun);
            std::vector<std::uint32_t> ends(num_partitions, 77);
            sorter.sort(partitions, rows.data(), ends.data());
            rows.resize(num_rows);
            ASSERT_EQ(rows, expected) << num_partitions << " partitions, " << num_rows << " rows";
            for (std::size_t p = 0; p < std::min<std::size_t>(num_partitions, 40); ++p) {
                auto const end = std::count_if(
                    partitions.begin(), partitions.end(), [p](auto partition) { return partition <= p; });
                ASSERT_EQ(static_cast<std::ptrdiff_t>(ends[p]), end);
            }
        }
    }
}

// Partitions that get nothing, at both ends.
TEST_P(BlockSortBy, LeavesOutWhatIsEmpty) {
    BlockSort sorter{6, GetParam()};
    std::vector<std::uint32_t> const partitions{4, 2, 4};
    std::vector<std::uint16_t> rows(3 + BlockSort::overrun);
    std::vector<std::uint32_t> ends(6);
    sorter.sort(partitions, rows.data(), ends.data());
    rows.resize(3);
    EXPECT_EQ(rows, (std::vector<std::uint16_t>{1, 0, 2}));
    EXPECT_EQ(ends, (std::vector<std::uint32_t>{0, 0, 1, 1, 3, 3}));
}

}  // namespace
}  // namespace rapidsmpf::detail

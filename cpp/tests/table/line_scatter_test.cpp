#include "table/host/line_scatter.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "table/packed/packed_layout.hpp"

namespace rapidsmpf::detail {
namespace {

constexpr std::size_t line = 64;

// Memory that begins a line, filled with what must be overwritten or stay.
class Output {
  public:
    explicit Output(std::size_t size) : memory_(size + 2 * line, mark) {
        auto const begin = reinterpret_cast<std::uintptr_t>(memory_.data());
        begin_ = memory_.data() + (line - begin % line) % line;
    }
    static constexpr std::byte mark{0xA5};
    [[nodiscard]] std::byte* begin() const noexcept { return begin_; }

  private:
    std::vector<std::byte> memory_;
    std::byte* begin_;
};

struct Case {
    std::vector<std::int64_t> widths;
    std::size_t num_partitions;
    std::size_t num_rows;
};

void check(Case const& what, unsigned seed) {
    SCOPED_TRACE(
        std::to_string(what.widths.size()) + " columns, " + std::to_string(what.num_partitions)
        + " partitions, " + std::to_string(what.num_rows) + " rows");
    std::mt19937 random{seed};
    std::vector<std::uint16_t> of_row(what.num_rows);
    for (auto& partition : of_row) {
        // Some get most, some nothing.
        partition =
            static_cast<std::uint16_t>(random() % 3 == 0 ? random() % what.num_partitions : random() % 2);
    }
    std::vector<std::size_t> rows(what.num_partitions, 0);
    for (auto const partition : of_row) {
        ++rows[partition];
    }
    std::vector<std::vector<std::byte>> values;
    std::vector<FixedValues> columns;
    std::vector<std::unique_ptr<Output>> outputs;
    std::vector<std::byte*> pieces;
    for (auto const width : what.widths) {
        values.emplace_back(what.num_rows * static_cast<std::size_t>(width));
        std::generate(
            values.back().begin(), values.back().end(), [&] { return static_cast<std::byte>(random()); });
        columns.push_back({values.back().data(), width});
        for (auto const count : rows) {
            outputs.push_back(
                std::make_unique<Output>(padded_size(static_cast<std::int64_t>(count) * width) + line));
            pieces.push_back(outputs.back()->begin());
        }
    }
    scatter_lines(columns, pieces, of_row, what.num_partitions);
    for (std::size_t c = 0; c < columns.size(); ++c) {
        auto const width = static_cast<std::size_t>(columns[c].width);
        std::vector<std::vector<std::byte>> expected(what.num_partitions);
        for (std::size_t row = 0; row < of_row.size(); ++row) {
            auto const* const value = columns[c].values + row * width;
            auto& piece = expected[of_row[row]];
            piece.insert(piece.end(), value, value + width);
        }
        for (std::size_t p = 0; p < what.num_partitions; ++p) {
            auto& piece = expected[p];
            piece.resize(padded_size(static_cast<std::int64_t>(piece.size())));
            piece.resize(piece.size() + line, Output::mark);  // what is behind it is not touched
            ASSERT_EQ(std::memcmp(pieces[c * what.num_partitions + p], piece.data(), piece.size()), 0)
                << "column " << c << ", partition " << p;
        }
    }
}

TEST(LineScatter, writes_every_value_once_in_order) {
    std::vector<std::int64_t> const all{8, 1, 8, 32, 2, 8, 4, 16, 8, 8, 8, 4, 4, 1, 8, 8};
    unsigned seed = 0;
    for (std::size_t const num_partitions : {2, 8, 77, 500}) {
        for (std::size_t const num_rows : {0, 1, 63, 64, 65, 5000}) {
            check({all, num_partitions, num_rows}, ++seed);
            for (auto const width : {1, 2, 4, 8, 16, 32}) {
                check({{width}, num_partitions, num_rows}, ++seed);
            }
        }
    }
}

// So many that the lines of two columns would be more than a cache holds.
TEST(LineScatter, very_many_partitions) {
    check({{8, 8, 4}, 8192, 40'000}, 1);
}

TEST(LineScatter, takes_columns_whose_values_fill_lines) {
    EXPECT_TRUE(can_scatter_lines(Field{"a", "l"}));
    EXPECT_TRUE(can_scatter_lines(Field{"a", "c"}));
    EXPECT_TRUE(can_scatter_lines(Field{"a", "d:38,2"}));
    EXPECT_TRUE(can_scatter_lines(Field{"a", "w:16"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "w:0"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "w:12"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "w:64"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "b"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "vu"}));
    EXPECT_FALSE(can_scatter_lines(Field{"a", "I", 2, {}, std::make_shared<Field const>("", "vu")}));
}

TEST(LineScatter, is_for_many_partitions_and_for_fewer_where_columns_have_one_width) {
    std::vector<Field> const alone{Field{"a", "l"}, Field{"b", "c"}};
    std::vector<Field> const alike{Field{"a", "l"}, Field{"b", "g"}, Field{"c", "l"}, Field{"d", "i"}};
    std::vector<Field> const texts{Field{"a", "l"}, Field{"b", "l"}, Field{"c", "u"}};
    constexpr std::int64_t many_rows = 1'000'000;
    EXPECT_FALSE(should_scatter_lines(alone, many_rows, 31));
    EXPECT_TRUE(should_scatter_lines(alone, many_rows, 32));
    EXPECT_FALSE(should_scatter_lines(alike, many_rows, 7));
    EXPECT_TRUE(should_scatter_lines(alike, many_rows, 8));
    EXPECT_FALSE(should_scatter_lines(alike, 7 * 8, 8));
    EXPECT_FALSE(should_scatter_lines(alike, many_rows, 8193));
    EXPECT_FALSE(should_scatter_lines(texts, many_rows, 100));
}

}  // namespace
}  // namespace rapidsmpf::detail

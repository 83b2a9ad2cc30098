// Which rows of a column go to which partition, for one block of rows at a time.
//
// Two forms: row numbers (a hash partition's block) and ranges of rows (a split, a whole table, and the items
// of lists in either). Both only refer to memory of their maker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "table/host/column_access.hpp"

namespace rapidsmpf::detail {

// A block has at most this many rows, so that a row's number within it takes 16 bits.
inline constexpr std::int64_t max_block_rows = 1 << 16;

// Some rows of one block that go to the same partition: base + rows[0], base + rows[1], ...
struct IndexRun {
    std::uint16_t const* rows;
    std::int64_t count;
    std::int64_t base;

    [[nodiscard]] std::int64_t num_rows() const noexcept { return count; }
    template <typename Visit>
    void for_each_row(Visit const& visit) const {
        for (std::int64_t k = 0; k < count; ++k) {
            visit(base + rows[k]);
        }
    }
};

// The rows of one block: those of partition p are rows[ends[p - 1]] to rows[ends[p] - 1].
struct IndexSelection {
    std::uint16_t const* rows;
    std::uint32_t const* ends;
    std::int64_t base;
    std::size_t num_partitions;

    [[nodiscard]] std::int64_t num_rows() const noexcept {
        return num_partitions == 0 ? 0 : ends[num_partitions - 1];
    }
    template <typename Visit>
    void for_each_run(Visit const& visit) const {
        std::uint32_t begin{0};
        for (std::size_t p = 0; p < num_partitions; ++p) {
            auto const end = ends[p];
            if (end != begin) {
                visit(p, IndexRun{rows + begin, static_cast<std::int64_t>(end - begin), base});
                begin = end;
            }
        }
    }
};

// Ranges of rows that go to the same partition.
struct RangeRun {
    RowRange const* ranges;
    std::size_t count;

    [[nodiscard]] std::int64_t num_rows() const noexcept {
        std::int64_t rows{0};
        for (std::size_t k = 0; k < count; ++k) {
            rows += ranges[k].length;
        }
        return rows;
    }
    template <typename Visit>
    void for_each_row(Visit const& visit) const {
        for (std::size_t k = 0; k < count; ++k) {
            auto const end = ranges[k].begin + ranges[k].length;
            for (auto row = ranges[k].begin; row < end; ++row) {
                visit(row);
            }
        }
    }
};

struct RangeSelection {
    RowRange const* ranges;
    std::size_t const* ends;
    std::size_t num_partitions;

    template <typename Visit>
    void for_each_run(Visit const& visit) const {
        std::size_t begin{0};
        for (std::size_t p = 0; p < num_partitions; ++p) {
            auto const end = ends[p];
            if (end != begin) {
                visit(p, RangeRun{ranges + begin, end - begin});
                begin = end;
            }
        }
    }
};

// All rows of a table, as one block of one partition.
class WholeTable {
  public:
    explicit WholeTable(Table const& table) : rows_{0, table.num_rows()} {}
    WholeTable(WholeTable const&) = delete;
    WholeTable& operator=(WholeTable const&) = delete;

    [[nodiscard]] std::span<RangeSelection const> blocks() const noexcept { return {&selection_, 1}; }

  private:
    RowRange rows_;
    std::size_t end_{1};
    RangeSelection selection_{&rows_, &end_, 1};
};

// Keeps a RangeSelection's memory. Filled partition by partition.
class RangeList {
  public:
    void clear() noexcept {
        ranges_.clear();
        ends_.clear();
        run_begin_ = 0;
    }
    // Appends to the run of the current partition; ranges that meet become one.
    void push(RowRange range) {
        if (range.length == 0) {
            return;
        }
        if (ranges_.size() > run_begin_ && ranges_.back().begin + ranges_.back().length == range.begin) {
            ranges_.back().length += range.length;
        } else {
            ranges_.push_back(range);
        }
    }
    // Ends the runs of all partitions before `partition`, which becomes the current one.
    void begin_partition(std::size_t partition) {
        ends_.resize(partition, ranges_.size());
        run_begin_ = ranges_.size();
    }
    [[nodiscard]] RangeSelection finish(std::size_t num_partitions) {
        ends_.resize(num_partitions, ranges_.size());
        return {ranges_.data(), ends_.data(), num_partitions};
    }

  private:
    std::vector<RowRange> ranges_;
    std::vector<std::size_t> ends_;
    std::size_t run_begin_{0};
};

// The child rows that belong to the selected rows of a list column.
template <typename Selection>
[[nodiscard]] RangeSelection select_items(
    Field const& field, Column const& column, Selection const& selection, RangeList& list) {
    list.clear();
    selection.for_each_run([&](std::size_t partition, auto const& run) {
        list.begin_partition(partition);
        if constexpr (std::is_same_v<Selection, RangeSelection>) {
            for (std::size_t k = 0; k < run.count; ++k) {  // items of adjacent rows are adjacent
                auto const range = run.ranges[k];
                auto const begin = items_at(field, column, range.begin).begin;
                auto const last = items_at(field, column, range.begin + range.length - 1);
                list.push({begin, last.begin + last.length - begin});
            }
        } else {
            run.for_each_row([&](std::int64_t row) { list.push(items_at(field, column, row)); });
        }
    });
    return list.finish(selection.num_partitions);
}

}  // namespace rapidsmpf::detail

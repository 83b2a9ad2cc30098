#include <rapidsmpf/table/partition.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

#include "table/gpu/device_table.hpp"
#include "table/host/block_sort.hpp"
#include "table/host/column_access.hpp"
#include "table/host/hash.hpp"
#include "table/host/pack_writer.hpp"
#include "table/host/partition_fixed.hpp"
#include "table/host/row_hasher.hpp"
#include "table/host/scratch.hpp"

namespace rapidsmpf {

namespace {

// The rows of a table by partition, in blocks: within a block, the rows of each partition one after the other.
class PartitionedRows {
  public:
    PartitionedRows(std::int64_t num_rows, std::size_t num_partitions)
        : num_partitions_{num_partitions},
          block_rows_{block_size(num_partitions)},
          rows_{static_cast<std::size_t>(num_rows) + detail::BlockSort::overrun},
          sort_{num_partitions} {
        ends_.reserve(static_cast<std::size_t>((num_rows + block_rows_ - 1) / block_rows_) * num_partitions);
    }

    [[nodiscard]] std::int64_t block_rows() const noexcept { return block_rows_; }

    // Sorts the next rows, whose partitions these are. All blocks but the last have block_rows() rows.
    void add_block(std::span<std::uint32_t const> partitions) {
        auto const base = filled_;
        auto const first_end = ends_.size();
        ends_.resize(first_end + num_partitions_);
        sort_.sort(partitions, rows_.data() + base, ends_.data() + first_end);
        filled_ += static_cast<std::int64_t>(partitions.size());
    }

    // They refer to this.
    [[nodiscard]] std::vector<detail::IndexSelection> blocks() const {
        std::vector<detail::IndexSelection> blocks;
        blocks.reserve(ends_.size() / num_partitions_);
        for (std::size_t at = 0; at < ends_.size(); at += num_partitions_) {
            auto const base = static_cast<std::int64_t>(blocks.size()) * block_rows_;
            blocks.push_back({rows_.data() + base, ends_.data() + at, base, num_partitions_});
        }
        return blocks;
    }

  private:
    // Enough rows for runs of some length, few enough for a block of a column to stay in the cache.
    static std::int64_t block_size(std::size_t num_partitions) {
        std::int64_t rows = 1 << 13;
        while (rows < detail::max_block_rows && rows < static_cast<std::int64_t>(num_partitions) * 64) {
            rows *= 2;
        }
        return rows;
    }

    std::size_t num_partitions_;
    std::int64_t block_rows_;
    std::int64_t filled_{0};
    detail::Scratch<std::uint16_t> rows_;  // of all blocks, within the block
    std::vector<std::uint32_t> ends_;      // by block, then partition
    detail::BlockSort sort_;
};

// The order that the caller names, or else the one that is advised where the parts will lie.
class Order {
  public:
    Order(std::span<std::uint32_t const> named, int num_partitions, BufferResource& br)
        : advised_{
              named.empty() ? br.partition_order_hint().find(static_cast<std::size_t>(num_partitions))
                            : nullptr},
          order_{advised_ ? std::span{*advised_} : named} {}

    [[nodiscard]] std::span<std::uint32_t const> get() const noexcept { return order_; }

  private:
    std::shared_ptr<PartitionOrderHint::Order const> advised_;
    std::span<std::uint32_t const> order_;
};

void check_partitions(int num_partitions, std::span<std::uint32_t const> placement) {
    RAPIDSMPF_EXPECTS(
        num_partitions >= 1,
        "the number of partitions must be at least 1, not " + std::to_string(num_partitions),
        std::invalid_argument);
    if (placement.empty()) {
        return;
    }
    auto const count = static_cast<std::size_t>(num_partitions);
    std::vector<bool> seen(count, false);
    bool is_permutation = placement.size() == count;
    for (std::size_t i = 0; is_permutation && i < count; ++i) {
        is_permutation = placement[i] < count && !seen[placement[i]];
        if (is_permutation) {
            seen[placement[i]] = true;
        }
    }
    RAPIDSMPF_EXPECTS(
        is_permutation, "the placement must name each of the partitions once", std::invalid_argument);
}

// Throws unless the column can hold the numbers of partitions: uint32 without nulls.
void check_partition_column(Table const& table, int pid_column) {
    RAPIDSMPF_EXPECTS(
        pid_column >= 0 && static_cast<std::size_t>(pid_column) < table.num_columns(),
        "there is no column number " + std::to_string(pid_column) + " in a table of "
            + std::to_string(table.num_columns()) + " columns",
        std::out_of_range);
    auto const at = static_cast<std::size_t>(pid_column);
    auto const& field = table.schema()->fields()[at];
    auto const& column = table.columns()[at];
    RAPIDSMPF_EXPECTS(
        field.format() == "I" && field.dictionary() == nullptr,
        "column '" + field.name() + "' says to which partition rows go: it must be uint32, not "
            + field.type_name(),
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        column.null_count == 0 || (column.null_count < 0 && column.length == 0),
        "column '" + field.name() + "' says to which partition rows go: it must not have nulls",
        std::invalid_argument);
}

// `numbers`: some, of the column called `name`.
void check_numbers(std::span<std::uint32_t const> numbers, int num_partitions, std::string const& name) {
    auto const highest = *std::ranges::max_element(numbers);
    RAPIDSMPF_EXPECTS(
        highest < static_cast<std::uint32_t>(num_partitions),
        "column '" + name + "' sends a row to partition " + std::to_string(highest) + " of "
            + std::to_string(num_partitions),
        std::out_of_range);
}

// partitions_of(first, out) fills in the partitions of rows [first, first + out.size()).
template <typename PartitionsOf>
std::vector<PackedData> pack_by(
    Table const& table, int num_partitions, BufferResource& br, std::span<std::uint32_t const> order,
    PartitionsOf const& partitions_of) {
    auto const count = static_cast<std::size_t>(num_partitions);
    if (auto const path = detail::fixed_path(table, count); path != detail::FixedPath::none) {
        return detail::partition_fixed(table, count, path, std::cref(partitions_of), order, br);
    }
    PartitionedRows rows{table.num_rows(), count};
    detail::Scratch<std::uint32_t> const block{
        static_cast<std::size_t>(std::min(rows.block_rows(), table.num_rows()))};
    for (std::int64_t first = 0; first < table.num_rows(); first += rows.block_rows()) {
        auto const partitions = block.span().first(
            static_cast<std::size_t>(std::min(rows.block_rows(), table.num_rows() - first)));
        partitions_of(first, partitions);
        rows.add_block(partitions);
    }
    return detail::pack_partitions<detail::IndexSelection>(table, count, rows.blocks(), order, br);
}

}  // namespace

std::vector<PackedData> partition_and_pack(
    Table const& table, std::span<int const> key_columns, int num_partitions, BufferResource& br,
    std::uint64_t seed, std::span<std::uint32_t const> placement) {
    check_partitions(num_partitions, placement);
    Order const order{placement, num_partitions, br};
    if (table.place() == TablePlace::gpu) {
        return detail::partition_on_gpu(
            table, key_columns, static_cast<std::uint32_t>(num_partitions), br, seed, order.get());
    }
    detail::RowHasher const hasher{table, key_columns, seed};
    std::vector<std::uint64_t> scratch;
    return pack_by(
        table, num_partitions, br, order.get(), [&](std::int64_t first, std::span<std::uint32_t> partitions) {
            hasher.partitions(first, static_cast<std::uint32_t>(num_partitions), partitions, scratch);
        });
}

std::vector<PackedData> partition_by_column_and_pack(
    Table const& table, int pid_column, int num_partitions, BufferResource& br,
    std::span<std::uint32_t const> placement) {
    check_partitions(num_partitions, placement);
    Order const order{placement, num_partitions, br};
    check_partition_column(table, pid_column);
    auto const at = static_cast<std::size_t>(pid_column);
    auto const& field = table.schema()->fields()[at];
    auto const& column = table.columns()[at];
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        if (i != at) {
            others.push_back(i);
        }
    }
    if (table.place() == TablePlace::gpu) {
        return detail::partition_by_column_on_gpu(
            table.select(others), column, field.name(), static_cast<std::uint32_t>(num_partitions), br,
            order.get());
    }
    return pack_by(
        table.select(others), num_partitions, br, order.get(),
        [&](std::int64_t first, std::span<std::uint32_t> partitions) {
            auto const* const from = column.values + (column.offset + first) * 4;
            std::memcpy(partitions.data(), from, partitions.size_bytes());
            check_numbers(partitions, num_partitions, field.name());
        });
}

std::vector<PackedData> partition_by_numbers_and_pack(
    Table const& table, std::span<std::uint32_t const> numbers, int num_partitions, BufferResource& br,
    std::span<std::uint32_t const> placement) {
    check_partitions(num_partitions, placement);
    RAPIDSMPF_EXPECTS(
        table.place() == TablePlace::host && numbers.size() == static_cast<std::size_t>(table.num_rows()),
        "a table in host memory takes the number of a partition for each of its rows", std::invalid_argument);
    Order const order{placement, num_partitions, br};
    return pack_by(
        table, num_partitions, br, order.get(), [&](std::int64_t first, std::span<std::uint32_t> partitions) {
            std::ranges::copy(
                numbers.subspan(static_cast<std::size_t>(first), partitions.size()), partitions.begin());
        });
}

std::vector<std::uint32_t> partition_column(Table const& table, int pid_column, int num_partitions) {
    check_partitions(num_partitions, {});
    check_partition_column(table, pid_column);
    auto const at = static_cast<std::size_t>(pid_column);
    auto const& column = table.columns()[at];
    std::vector<std::uint32_t> numbers(static_cast<std::size_t>(table.num_rows()));
    if (!numbers.empty()) {
        std::memcpy(numbers.data(), column.values + column.offset * 4, numbers.size() * 4);
        check_numbers(numbers, num_partitions, table.schema()->fields()[at].name());
    }
    return numbers;
}

std::vector<std::uint32_t> hash_partition_ids(
    Table const& table, std::span<int const> key_columns, int num_partitions, std::uint64_t seed) {
    check_partitions(num_partitions, {});
    if (table.place() == TablePlace::gpu) {
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(table.num_rows()));
        detail::hash_rows_on_gpu(table, key_columns, 0, hashes, seed);
        std::vector<std::uint32_t> numbers;
        numbers.reserve(hashes.size());
        for (auto const value : hashes) {
            numbers.push_back(hash::partition_of(value, static_cast<std::uint32_t>(num_partitions)));
        }
        return numbers;
    }
    detail::RowHasher const hasher{table, key_columns, seed};
    std::vector<std::uint32_t> partitions(static_cast<std::size_t>(table.num_rows()));
    std::vector<std::uint64_t> scratch;
    constexpr std::size_t block = 1 << 13;
    for (std::size_t first = 0; first < partitions.size(); first += block) {
        auto const rows = std::span{partitions}.subspan(first, std::min(block, partitions.size() - first));
        hasher.partitions(
            static_cast<std::int64_t>(first), static_cast<std::uint32_t>(num_partitions), rows, scratch);
    }
    return partitions;
}

std::vector<PackedData> split_and_pack(
    Table const& table, std::span<std::int64_t const> splits, BufferResource& br) {
    detail::RangeList list;
    std::int64_t begin{0};
    for (std::size_t i = 0; i <= splits.size(); ++i) {
        auto const end = i < splits.size() ? splits[i] : table.num_rows();
        RAPIDSMPF_EXPECTS(
            begin <= end && end <= table.num_rows(),
            "split number " + std::to_string(std::min(i, splits.size() - 1))
                + " is out of place: splits must ascend within [0, " + std::to_string(table.num_rows()) + "]",
            std::out_of_range);
        list.begin_partition(i);
        list.push({begin, end - begin});
        begin = end;
    }
    if (table.place() == TablePlace::gpu) {
        return detail::split_on_gpu(table, splits, br);
    }
    auto const selection = list.finish(splits.size() + 1);
    return detail::pack_partitions<detail::RangeSelection>(table, splits.size() + 1, {&selection, 1}, {}, br);
}

}  // namespace rapidsmpf

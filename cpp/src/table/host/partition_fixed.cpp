#include "table/host/partition_fixed.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <rapidsmpf/device/detail/stream_copy.hpp>

#include "table/host/block_sort.hpp"
#include "table/host/concat_fixed.hpp"
#include "table/host/line_scatter.hpp"
#include "table/host/scatter.hpp"
#include "table/host/scratch.hpp"
#include "table/host/selection.hpp"
#include "table/host/tuning.hpp"
#include "table/packed/packed_format.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

// Rows whose partitions are found out at a time.
constexpr std::int64_t block_rows = 1 << 12;

std::vector<FixedValues> columns_of(Table const& table) {
    std::vector<FixedValues> columns;
    columns.reserve(table.num_columns());
    for (std::size_t c = 0; c < table.num_columns(); ++c) {
        auto const& column = table.columns()[c];
        auto const width = table.schema()->fields()[c].width();
        columns.push_back({column.values + column.offset * width, width});
    }
    return columns;
}

// The partitions of a table whose rows have been counted: in each the values of one column after the other.
class FixedPartitions {
  public:
    // `rows`: of each partition.
    FixedPartitions(
        Table const& table, std::span<FixedValues const> columns, std::vector<std::int64_t> rows,
        std::span<std::uint32_t const> placement, BufferResource& br)
        : table_{table}, columns_{columns}, rows_{std::move(rows)}, sizes_(rows_.size(), 0) {
        for (std::size_t p = 0; p < rows_.size(); ++p) {
            for (auto const& column : columns_) {
                sizes_[p] += padded_size(rows_[p] * column.width);
            }
        }
        buffers_ = allocate_parts(sizes_, placement, br, AllowOverbooking::yes);
    }

    // Calls use(column, rows, to) for each column of a partition.
    template <typename Use>
    void for_each_column(std::size_t partition, Use const& use) {
        auto const rows = rows_[partition];
        auto* to = buffers_[partition]->mutable_host_bytes().data();
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            use(c, rows, to);
            to += padded_size(rows * columns_[c].width);
        }
    }

    [[nodiscard]] std::vector<PackedData> pack() && {
        std::vector<PackedData> packed;
        packed.reserve(rows_.size());
        FixedMetadataWriter metadata{*table_.schema()};
        for (std::size_t p = 0; p < rows_.size(); ++p) {
            packed.emplace_back(metadata.of(rows_[p], sizes_[p]), std::move(buffers_[p]));
        }
        return packed;
    }

  private:
    Table const& table_;
    std::span<FixedValues const> columns_;
    std::vector<std::int64_t> rows_;
    std::vector<std::size_t> sizes_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
};

std::vector<PackedData> partition_by_lines(
    Table const& table, std::size_t num_partitions, PartitionsOf const& partitions_of,
    std::span<std::uint32_t const> placement, BufferResource& br) {
    auto const columns = columns_of(table);
    auto const num_rows = table.num_rows();
    Scratch<std::uint16_t> const of_row{static_cast<std::size_t>(num_rows)};
    Scratch<std::uint32_t> const block{static_cast<std::size_t>(std::min(block_rows, num_rows))};
    std::vector<std::int64_t> rows(num_partitions, 0);
    for (std::int64_t first = 0; first < num_rows; first += block_rows) {
        auto const partitions =
            block.span().first(static_cast<std::size_t>(std::min(block_rows, num_rows - first)));
        partitions_of(first, partitions);
        auto* to = of_row.data() + first;
        for (auto const partition : partitions) {
            ++rows[partition];
            *to++ = static_cast<std::uint16_t>(partition);
        }
    }
    FixedPartitions all{table, columns, std::move(rows), placement, br};
    Scratch<std::byte*> const begins{columns.size() * num_partitions};
    for (std::size_t p = 0; p < num_partitions; ++p) {
        all.for_each_column(p, [&](std::size_t c, std::int64_t, std::byte* to) {
            begins.data()[c * num_partitions + p] = to;
        });
    }
    scatter_lines(columns, begins.span(), of_row.span(), num_partitions);
    return std::move(all).pack();
}

// The values of some rows of a column, and zeros up to the end of the last line: they travel, and must not carry what was there.
void write_column(std::byte* to, FixedValues const& column, std::uint16_t const* rows, std::int64_t count) {
    auto const bytes = count * column.width;
    gather_rows(to, column.values, rows, count, column.width, Stores::cached);
    std::memset(to + bytes, 0, padded_size(bytes) - static_cast<std::size_t>(bytes));
}

// All rows in one block.
std::vector<PackedData> partition_by_indexing(
    Table const& table, std::size_t num_partitions, PartitionsOf const& partitions_of,
    std::span<std::uint32_t const> placement, BufferResource& br) {
    auto const columns = columns_of(table);
    auto const num_rows = table.num_rows();
    Scratch<std::uint32_t> const of_row{static_cast<std::size_t>(num_rows)};
    if (num_rows > 0) {
        partitions_of(0, of_row.span());
    }
    for (auto const& column : columns) {
        device::prefetch(column.values, static_cast<std::size_t>(num_rows * column.width));
    }
    Scratch<std::uint16_t> const sorted{of_row.span().size() + BlockSort::overrun};
    std::vector<std::uint32_t> ends(num_partitions);
    BlockSort{num_partitions}.sort(of_row.span(), sorted.data(), ends.data());
    std::vector<std::int64_t> rows;
    rows.reserve(num_partitions);
    std::uint32_t begin = 0;
    for (auto const end : ends) {
        rows.push_back(end - begin);
        begin = end;
    }
    FixedPartitions all{table, columns, std::move(rows), placement, br};
    for (std::size_t p = 0; p < num_partitions; ++p) {
        auto const* const first = sorted.data() + (p == 0 ? 0 : ends[p - 1]);
        all.for_each_column(p, [&](std::size_t c, std::int64_t count, std::byte* to) {
            if (count * columns[c].width > 0) {
                write_column(to, columns[c], first, count);
            }
        });
    }
    return std::move(all).pack();
}

}  // namespace

FixedPath fixed_path(Table const& table, std::size_t num_partitions) {
    auto const& fields = table.schema()->fields();
    auto const is_plain = [](Column const& column) { return column.validity == nullptr; };
    if (!FixedConcat::takes(*table.schema())
        || !std::all_of(table.columns().begin(), table.columns().end(), is_plain)) {
        return FixedPath::none;
    }
    if (should_scatter_lines(fields, table.num_rows(), num_partitions)) {
        return FixedPath::by_lines;
    }
    std::size_t bytes = 0;
    for (auto const& field : fields) {
        bytes += static_cast<std::size_t>(table.num_rows() * field.width());
    }
    auto const is_small = table.num_rows() <= max_block_rows && bytes <= tuning::largest_indexed_table
                          && bytes / num_partitions <= tuning::largest_indexed_part;
    return is_small ? FixedPath::by_indexing : FixedPath::none;
}

std::vector<PackedData> partition_fixed(
    Table const& table, std::size_t num_partitions, FixedPath path, PartitionsOf const& partitions_of,
    std::span<std::uint32_t const> placement, BufferResource& br) {
    if (path == FixedPath::by_lines) {
        return partition_by_lines(table, num_partitions, partitions_of, placement, br);
    }
    return partition_by_indexing(table, num_partitions, partitions_of, placement, br);
}

}  // namespace rapidsmpf::detail

#include "partition_fixed.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <rapidsmpf/device/stream_copy.hpp>

#include "block_sort.hpp"
#include "concat_fixed.hpp"
#include "packed_format.hpp"
#include "packed_layout.hpp"
#include "scatter.hpp"
#include "scratch.hpp"
#include "selection.hpp"
#include "slab.hpp"

namespace rapidsmpf::detail {

namespace {

// A table that stays in the second cache while its rows are gathered.
constexpr std::size_t largest_table = std::size_t{1} << 20U;
// Pieces that are this large on average are worth streaming, column by column, which the Packer does.
constexpr std::size_t largest_piece = std::size_t{8} << 10U;

struct Source {
    std::byte const* values;
    std::int64_t width;
};

}  // namespace

bool can_partition_fixed(Table const& table, std::size_t num_partitions) {
    if (table.num_rows() > max_block_rows || !FixedConcat::takes(*table.schema())) {
        return false;
    }
    std::size_t bytes = 0;
    for (std::size_t c = 0; c < table.num_columns(); ++c) {
        if (table.columns()[c].validity != nullptr) {
            return false;
        }
        bytes += static_cast<std::size_t>(table.num_rows() * table.schema()->fields()[c].width());
    }
    return bytes <= largest_table && bytes / num_partitions <= largest_piece;
}

std::vector<PackedData> partition_fixed(
    Table const& table, std::size_t num_partitions, std::span<std::uint32_t const> partitions,
    std::span<std::uint32_t const> placement, BufferResource& br) {
    std::vector<Source> columns;
    for (std::size_t c = 0; c < table.num_columns(); ++c) {
        auto const& column = table.columns()[c];
        auto const width = table.schema()->fields()[c].width();
        columns.push_back({column.values + column.offset * width, width});
        device::prefetch(columns.back().values, static_cast<std::size_t>(table.num_rows() * width));
    }
    Scratch<std::uint16_t> const rows{partitions.size() + BlockSort::overrun};
    std::vector<std::uint32_t> ends(num_partitions);
    BlockSort{num_partitions}.sort(partitions, rows.data(), ends.data());
    auto const begin_of = [&](std::size_t p) { return p == 0 ? 0 : ends[p - 1]; };
    auto const rows_of = [&](std::size_t p) { return static_cast<std::int64_t>(ends[p] - begin_of(p)); };

    std::vector<std::size_t> sizes(num_partitions, 0);
    for (std::size_t p = 0; p < num_partitions; ++p) {
        for (auto const& column : columns) {
            sizes[p] += padded_size(rows_of(p) * column.width);
        }
    }
    auto buffers = allocate_parts(sizes, placement, br, AllowOverbooking::yes);
    std::vector<PackedData> packed;
    packed.reserve(num_partitions);
    FixedMetadataWriter metadata{*table.schema()};
    for (std::size_t p = 0; p < num_partitions; ++p) {
        auto const count = rows_of(p);
        auto* to = buffers[p]->mutable_host_bytes().data();
        for (auto const& column : columns) {
            auto const bytes = static_cast<std::size_t>(count * column.width);
            auto const padded = padded_size(static_cast<std::int64_t>(bytes));
            if (bytes == 0) {
                continue;
            }
            gather_rows(to, column.values, rows.data() + begin_of(p), count, column.width, Stores::cached);
            std::memset(
                to + bytes, 0, padded - bytes);  // it travels, and must not carry what lay there before
            to += padded;
        }
        packed.emplace_back(metadata.of(count, sizes[p]), std::move(buffers[p]));
    }
    return packed;
}

}  // namespace rapidsmpf::detail

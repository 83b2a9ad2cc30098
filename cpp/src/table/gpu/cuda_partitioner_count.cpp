#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "table/gpu/cuda_partitioner.hpp"

namespace rapidsmpf::detail {

namespace {

// Results up to this size are written before their sizes are known on the host, to memory that is long enough for
// any outcome: the GPU works while the host waits. All parts then share one allocation, which is freed with the last
// of them; so larger results wait, and get allocations of their own.
constexpr std::size_t max_eager_bytes = 256UL << 20U;

}  // namespace

GpuPartitioner::GpuPartitioner(Table const& table, std::uint32_t num_partitions, BufferResource& br)
    : table_{table},
      num_partitions_{num_partitions},
      br_{br},
      stream_{table.stream()},
      flat_{flatten(*table.schema(), table.columns())},
      states_(flat_.nodes.size()) {
    RAPIDSMPF_EXPECTS(
        num_partitions <= max_device_partitions,
        "a GPU partitions a table into at most " + std::to_string(max_device_partitions)
            + " parts at a time, not " + std::to_string(num_partitions)
            + ": partition it twice, or in slices",
        std::invalid_argument);
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        RAPIDSMPF_EXPECTS(
            flat_.nodes[n].layout != Layout::view,
            "column '" + flat_.fields[n]->name() + "' (" + flat_.fields[n]->type_name()
                + ") cannot be partitioned on a GPU: cast it to utf8 or binary first",
            std::invalid_argument);
    }
    auto const root = add_space(table.num_rows(), num_partitions, -1, -1, -1);
    for (auto const column : flat_.columns) {
        place_node(column, root);
    }
}

std::vector<PackedData> GpuPartitioner::run(
    std::span<std::byte const> extra, std::span<std::uint32_t const> placement,
    std::function<RootRows()> const& assign, std::function<void(std::uint32_t)> const& check_highest) {
    eager_bytes_ = eager_bytes();
    plan(extra.size());
    std::optional<DeviceSlab> slab;
    if (eager_bytes_) {
        slab = allocate_device_slab(*eager_bytes_, br_, AllowOverbooking::yes, stream_);
    }
    upload(extra, placement);
    count(table_.num_rows() > 0 ? assign() : RootRows::assigned);
    start_reading_back();
    sum_up_rows();
    if (slab) {
        place_slots(
            placed_, static_cast<std::uint32_t>(flat_.nodes.size()), num_partitions_,
            placement.empty() ? nullptr : order_, slab->memory.get(), slots_, stream_);
        enqueue_writes();
    }
    finish_reading_back();
    if (check_highest) {
        check_highest(highest_);
    }
    return slab ? split(std::move(*slab), placement) : write(placement);
}

std::int32_t GpuPartitioner::add_space(
    std::int64_t rows, std::uint32_t num_partitions, std::int32_t parent, std::int32_t list,
    std::int32_t codes) {
    RAPIDSMPF_EXPECTS(
        rows <= max_space_rows,
        "a table or list column of " + std::to_string(rows)
            + " rows is too long to be partitioned at once on a GPU: divide it into slices of less than 2^32 rows first",
        std::invalid_argument);
    Space space;
    space.rows.rows = rows;
    space.rows.num_partitions = num_partitions;
    space.rows.tile_rows = choose_tile_rows(num_partitions);
    space.rows.tiles = static_cast<std::uint32_t>((rows + space.rows.tile_rows - 1) / space.rows.tile_rows);
    space.parent = parent;
    space.list = list;
    space.codes = codes;
    spaces_.push_back(space);
    return static_cast<std::int32_t>(spaces_.size() - 1);
}

void GpuPartitioner::place_node(std::int32_t index, std::int32_t space) {
    auto const at = static_cast<std::size_t>(index);
    states_[at].space = space;
    auto const& node = flat_.nodes[at];
    auto const is_list =
        node.layout == Layout::list32 || node.layout == Layout::list64 || node.layout == Layout::fixed_list;
    auto below = space;
    if (is_list) {
        auto& parent = spaces_[static_cast<std::size_t>(space)];
        parent.has_items = true;
        auto const partitions = parent.rows.num_partitions;
        auto const codes = parent.codes;
        auto const items = flat_.nodes[static_cast<std::size_t>(node.first_child)].length;
        below = add_space(items, partitions, space, index, codes);
    }
    for (auto child = node.first_child; child >= 0;
         child = flat_.nodes[static_cast<std::size_t>(child)].sibling) {
        place_node(child, below);
    }
    if (node.dictionary >= 0) {
        auto const values = flat_.nodes[static_cast<std::size_t>(node.dictionary)].length;
        place_node(node.dictionary, add_space(values, 1, -1, -1, index));
    }
}

void GpuPartitioner::lay_out(Arena& arena, std::size_t extra_bytes) {
    device_nodes_ = arena.take<DeviceNode>(flat_.nodes.size());
    extra_ = arena.take<std::byte>(extra_bytes);
    fixed_ = arena.take<FixedColumn>(flat_.nodes.size());
    bits_ = arena.take<BitColumn>(2 * flat_.nodes.size());
    placed_ = arena.take<PlacedColumn>(flat_.nodes.size());
    order_ = arena.take<std::uint32_t>(num_partitions_);
    counts_ = arena.take<std::uint64_t>(num_counts_);
    uploaded_ = arena.used();
    for (auto& space : spaces_) {
        auto& rows = space.rows;
        auto const num_rows = static_cast<std::uint64_t>(rows.rows);
        rows.partitions = arena.take<std::uint16_t>(num_rows);
        rows.order = space.has_items ? arena.take<std::uint16_t>(num_rows) : rows.partitions;
        rows.starts = arena.take<std::uint16_t>(std::uint64_t{rows.tiles} * (rows.buckets() + 1));
        auto const sums = std::uint64_t{rows.tiles} * rows.buckets() + 1;
        rows.before = arena.take<std::uint32_t>(sums);
        rows.totals = counts_ + space.counted_at;
    }
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        if (states_[n].lengths_at) {
            auto const& rows = space_of(n).rows;
            states_[n].sums = arena.take<std::uint64_t>(std::uint64_t{rows.tiles} * rows.num_partitions + 1);
        }
    }
    scan_ = arena.take<std::byte>(scan_bytes_);
    slots_ = arena.take<DeviceSlot>(flat_.nodes.size() * num_partitions_);
}

void GpuPartitioner::number_counts() {
    std::size_t counts{1};  // the first is for the highest number
    std::uint64_t most_sums{0};
    for (auto& space : spaces_) {
        most_sums = std::max(most_sums, std::uint64_t{space.rows.tiles} * space.rows.buckets() + 1);
        space.counted_at = std::exchange(counts, counts + space.rows.num_partitions);
    }
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        auto const& node = flat_.nodes[n];
        auto const& rows = space_of(n).rows;
        if (rows.rows > 0 && has_offsets(node.layout)) {
            states_[n].lengths_at = std::exchange(counts, counts + rows.num_partitions);
        }
        if (rows.rows > 0 && node.validity != nullptr && node.layout != Layout::null) {
            states_[n].nulls_at = std::exchange(counts, counts + rows.num_partitions);
        }
    }
    num_counts_ = counts;
    scan_bytes_ = most_sums > 1 ? scan_scratch_bytes(most_sums) : 0;
}

std::optional<std::size_t> GpuPartitioner::eager_bytes() {
    std::size_t bytes{0};
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        auto const& node = flat_.nodes[n];
        if (has_offsets(node.layout) || node.dictionary >= 0 || space_of(n).codes >= 0) {
            return std::nullopt;
        }
        auto const rows = space_of(n).rows.rows;
        auto const most = [&](std::int64_t size) {
            return static_cast<std::size_t>(size) + 64 * (std::size_t{num_partitions_} + 1);
        };
        bytes += most(values_bytes(*flat_.fields[n], rows)) + (node.validity != nullptr ? most(rows / 8) : 0);
    }
    if (bytes > max_eager_bytes || table_.num_rows() == 0 || flat_.nodes.empty()) {
        return std::nullopt;
    }
    return bytes;
}

void GpuPartitioner::plan(std::size_t extra_bytes) {
    number_counts();
    Arena measure{nullptr};
    lay_out(measure, extra_bytes);
    scratch_ = br_.allocate(MemoryType::DEVICE, measure.used(), stream_);
    // Only this object uses it, and all on one stream: no write has to be marked.
    Arena arena{const_cast<std::byte*>(scratch_->data())};
    lay_out(arena, extra_bytes);
}

void GpuPartitioner::upload(std::span<std::byte const> extra, std::span<std::uint32_t const> placement) {
    auto const* const base = reinterpret_cast<std::byte const*>(device_nodes_);
    auto* const blob =
        StagingBuffer::of_this_thread().memory(uploaded_ + num_counts_ * sizeof(std::uint64_t));
    auto const put = [&](void const* place, void const* from, std::size_t bytes) {
        if (bytes > 0) {
            std::memcpy(blob + (static_cast<std::byte const*>(place) - base), from, bytes);
        }
    };
    put(device_nodes_, flat_.nodes.data(), flat_.nodes.size() * sizeof(DeviceNode));
    put(extra_, extra.data(), extra.size());
    put(order_, placement.data(), placement.size_bytes());
    if (eager_bytes_) {
        describe_columns();
        std::vector<PlacedColumn> placed;
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            auto const& node = flat_.nodes[n];
            placed.push_back(
                {counts_ + space_of(n).counted_at,
                 states_[n].nulls_at ? counts_ + *states_[n].nulls_at : nullptr,
                 node.layout == Layout::fixed ? node.width : 0, node.layout == Layout::bits});
        }
        put(placed_, placed.data(), placed.size() * sizeof(PlacedColumn));
        auto* fixed = fixed_;
        auto* bits = bits_;
        for (auto const& columns : columns_) {
            put(fixed, columns.fixed.data(), columns.fixed.size() * sizeof(FixedColumn));
            put(bits, columns.bits.data(), columns.bits.size() * sizeof(BitColumn));
            fixed += columns.fixed.size();
            bits += columns.bits.size();
        }
    }
    br_.device().copy(device_nodes_, blob, uploaded_, stream_);  // the counts become zero, too
}

void GpuPartitioner::count(RootRows root_rows) {
    for (auto& space : spaces_) {  // parents before their items
        auto const& rows = space.rows;
        if (rows.rows == 0) {
            continue;
        }
        if (space.parent >= 0) {
            assign_items(
                rows, spaces_[static_cast<std::size_t>(space.parent)].rows,
                flat_.nodes[static_cast<std::size_t>(space.list)], stream_);
        } else if (space.codes >= 0) {
            assign_to_first(rows, stream_);
        }
        if (&space != &spaces_.front() || root_rows == RootRows::assigned) {
            sort_tiles(rows, stream_);
        }
    }
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        if (states_[n].lengths_at) {
            auto const& rows = space_of(n).rows;
            measure_lengths(rows, flat_.nodes[n], states_[n].sums, stream_);
            sum_up(
                states_[n].sums, std::uint64_t{rows.tiles} * rows.num_partitions + 1, scan_, scan_bytes_,
                stream_);
            collect_lengths(rows, states_[n].sums, counts_ + *states_[n].lengths_at, stream_);
        }
    }
    for (std::size_t s = 0; s < spaces_.size(); ++s) {
        count_nulls_of(s);
    }
}

void GpuPartitioner::count_nulls_of(std::size_t space) {
    std::array<NullCount, max_null_counts> counts{};
    int filled{0};
    auto const flush = [&] {
        if (filled > 0) {
            count_nulls(spaces_[space].rows, counts.data(), std::exchange(filled, 0), stream_);
        }
    };
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        if (static_cast<std::size_t>(states_[n].space) != space || !states_[n].nulls_at) {
            continue;
        }
        counts[static_cast<std::size_t>(filled++)] = {
            flat_.nodes[n].validity, flat_.nodes[n].bit_offset, counts_ + *states_[n].nulls_at};
        if (filled == max_null_counts) {
            flush();
        }
    }
    flush();
}

void GpuPartitioner::sum_up_rows() {
    for (auto const& space : spaces_) {
        auto const& rows = space.rows;
        if (rows.rows > 0) {
            sum_up(rows.before, std::uint64_t{rows.tiles} * rows.buckets() + 1, scan_, scan_bytes_, stream_);
        }
    }
}

void GpuPartitioner::start_reading_back() {
    auto& staging = StagingBuffer::of_this_thread();
    landed_ = reinterpret_cast<std::uint64_t*>(staging.memory_behind(uploaded_));
    br_.device().copy(landed_, counts_, num_counts_ * sizeof(std::uint64_t), stream_);
    staging.mark(stream_);
}

void GpuPartitioner::finish_reading_back() {
    StagingBuffer::of_this_thread().wait();
    known_.assign(landed_, landed_ + num_counts_);
    highest_ = static_cast<std::uint32_t>(known_[0]);
}

}  // namespace rapidsmpf::detail

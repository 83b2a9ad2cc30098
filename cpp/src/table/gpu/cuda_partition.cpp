// Partitioning a table on a GPU: plans the steps, enqueues them, and waits once, for the sizes.
//
//   plan       the spaces that rows live in, and one block of scratch memory for all of them
//   count      which partition each row goes to, tiles sorted, lengths and nulls counted
//   read back  the counts of all columns and partitions: the one copy to the host, and the one wait
//   write      places in memory, and every row copied there
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/gather_copy.hpp>

#include "table/gpu/cuda_staging.hpp"
#include "table/gpu/device_table.hpp"
#include "table/gpu/partition_kernels.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

// Results up to this size are written before their sizes are known on the host, to memory that is long enough for
// any outcome: the GPU goes on while the host waits. All parts then share one allocation, which lives until the last
// of them is gone; so larger results wait, and are put into allocations of their own.
constexpr std::size_t max_eager_bytes = 256UL << 20U;

// Whether the root's rows know where they go, or are sorted already.
enum class RootRows { assigned, sorted };

// A RowSpace, and where it comes from.
struct Space {
    RowSpace rows;
    std::int32_t parent{-1};    // the space of the lists whose items these are
    std::int32_t list{-1};      // the node of those lists
    std::int32_t codes{-1};     // the node whose dictionary's values these are, or are beneath
    bool has_items{false};      // whether there are lists in it
    std::size_t counted_at{0};  // its rows, by partition, in what is read back
};

// What is counted of a node.
struct NodeState {
    std::int32_t space{0};
    RunningSums sums{nullptr};
    std::optional<std::size_t> lengths_at;  // in what is read back
    std::optional<std::size_t> nulls_at;
};

class GpuPartitioner {
  public:
    GpuPartitioner(Table const& table, std::uint32_t num_partitions, BufferResource& br)
        : table_{table},
          num_partitions_{num_partitions},
          br_{br},
          stream_{table.stream()},
          flat_{flatten(*table.schema(), table.columns())},
          states_(flat_.nodes.size()) {
        RAPIDSMPF_EXPECTS(
            num_partitions <= max_device_partitions,
            "a GPU cuts a table into at most " + std::to_string(max_device_partitions)
                + " parts at a time, not " + std::to_string(num_partitions)
                + ": cut it twice, or into slices first",
            std::invalid_argument);
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            RAPIDSMPF_EXPECTS(
                flat_.nodes[n].layout != Layout::view,
                "column '" + flat_.fields[n]->name() + "' (" + flat_.fields[n]->type_name()
                    + ") cannot be cut on a GPU: cast it to utf8 or binary first",
                std::invalid_argument);
        }
        auto const root = add_space(table.num_rows(), num_partitions, -1, -1, -1);
        for (auto const column : flat_.columns) {
            place_node(column, root);
        }
    }

    [[nodiscard]] RowSpace const& root() const noexcept { return spaces_.front().rows; }
    [[nodiscard]] DeviceNode const* nodes() const noexcept { return device_nodes_; }
    // Memory of the caller's for `count` numbers, filled with `values`.
    [[nodiscard]] void* extra() const noexcept { return extra_; }
    [[nodiscard]] std::uint32_t highest() const noexcept { return highest_; }

    [[nodiscard]] DeviceNode const& node(std::int32_t index) const {
        return flat_.nodes.at(static_cast<std::size_t>(index));
    }

    // `assign` enqueues what fills the partitions of root(), or sorts its tiles right away. `extra`: bytes that it wants
    // to have in device memory. `check_highest` sees the number that assign() has found, if it uses highest_address().
    [[nodiscard]] std::vector<PackedData> run(
        std::span<std::byte const> extra, std::span<std::uint32_t const> placement,
        std::function<RootRows()> const& assign,
        std::function<void(std::uint32_t)> const& check_highest = {}) {
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
    [[nodiscard]] std::uint32_t* highest_address() const noexcept {
        return reinterpret_cast<std::uint32_t*>(counts_);
    }

  private:
    [[nodiscard]] std::int32_t add_space(
        std::int64_t rows, std::uint32_t num_partitions, std::int32_t parent, std::int32_t list,
        std::int32_t codes) {
        RAPIDSMPF_EXPECTS(
            rows <= max_space_rows,
            "a table or list column of " + std::to_string(rows)
                + " rows is too long to be cut at once on a GPU: cut it into slices of less than 2^32 rows first",
            std::invalid_argument);
        Space space;
        space.rows.rows = rows;
        space.rows.num_partitions = num_partitions;
        space.rows.tile_rows = choose_tile_rows(num_partitions);
        space.rows.tiles =
            static_cast<std::uint32_t>((rows + space.rows.tile_rows - 1) / space.rows.tile_rows);
        space.parent = parent;
        space.list = list;
        space.codes = codes;
        spaces_.push_back(space);
        return static_cast<std::int32_t>(spaces_.size() - 1);
    }

    void place_node(std::int32_t index, std::int32_t space) {
        auto const at = static_cast<std::size_t>(index);
        states_[at].space = space;
        auto const& node = flat_.nodes[at];
        auto const is_list = node.layout == Layout::list32 || node.layout == Layout::list64
                             || node.layout == Layout::fixed_list;
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

    [[nodiscard]] Space& space_of(std::size_t node) noexcept {
        return spaces_[static_cast<std::size_t>(states_[node].space)];
    }

    // Gives everything its place in the scratch memory.
    void lay_out(Arena& arena, std::size_t extra_bytes) {
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
                states_[n].sums =
                    arena.take<std::uint64_t>(std::uint64_t{rows.tiles} * rows.num_partitions + 1);
            }
        }
        scan_ = arena.take<std::byte>(scan_bytes_);
        slots_ = arena.take<DeviceSlot>(flat_.nodes.size() * num_partitions_);
    }

    // Which numbers are read back, and where they are among them.
    void number_counts() {
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

    // How long the result can get, if it may be written before its sizes are known.
    [[nodiscard]] std::optional<std::size_t> eager_bytes() {
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
            bytes +=
                most(values_bytes(*flat_.fields[n], rows)) + (node.validity != nullptr ? most(rows / 8) : 0);
        }
        if (bytes > max_eager_bytes || table_.num_rows() == 0 || flat_.nodes.empty()) {
            return std::nullopt;
        }
        return bytes;
    }

    void plan(std::size_t extra_bytes) {
        number_counts();
        Arena measure{nullptr};
        lay_out(measure, extra_bytes);
        scratch_ = br_.allocate(MemoryType::DEVICE, measure.used(), stream_);
        // Nobody but us sees it, and all on one stream: no write has to be marked.
        Arena arena{const_cast<std::byte*>(scratch_->data())};
        lay_out(arena, extra_bytes);
    }

    void upload(std::span<std::byte const> extra, std::span<std::uint32_t const> placement) {
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

    void count(RootRows root_rows) {
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

    void count_nulls_of(std::size_t space) {
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

    // Where the rows of each tile go in their partitions. Nobody waits for it.
    void sum_up_rows() {
        for (auto const& space : spaces_) {
            auto const& rows = space.rows;
            if (rows.rows > 0) {
                sum_up(
                    rows.before, std::uint64_t{rows.tiles} * rows.buckets() + 1, scan_, scan_bytes_, stream_);
            }
        }
    }

    void start_reading_back() {
        auto& staging = StagingBuffer::of_this_thread();
        landed_ = reinterpret_cast<std::uint64_t*>(staging.memory_behind(uploaded_));
        br_.device().copy(landed_, counts_, num_counts_ * sizeof(std::uint64_t), stream_);
        staging.mark(stream_);
    }

    void finish_reading_back() {
        StagingBuffer::of_this_thread().wait();
        known_.assign(landed_, landed_ + num_counts_);
        highest_ = static_cast<std::uint32_t>(known_[0]);
    }

    // What has been read back, as rows, bytes and nulls of each column in each partition.
    [[nodiscard]] PackedLayout counted_layout() {
        PackedLayout layout{flat_.fields, num_partitions_};
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            auto const& space = space_of(n);
            for (std::size_t p = 0; p < num_partitions_; ++p) {
                // A dictionary goes to each partition that has codes.
                auto const is_there =
                    space.codes < 0 || layout.slot(static_cast<std::size_t>(space.codes), p).rows > 0;
                auto const at = space.codes < 0 ? p : 0;
                if (!is_there) {
                    continue;
                }
                auto const number = [&](std::size_t index) {
                    return static_cast<std::int64_t>(known_[index + at]);
                };
                auto& slot = layout.slot(n, p);
                slot.rows = number(space.counted_at);
                if (states_[n].lengths_at && is_text(flat_.nodes[n].layout)) {
                    slot.bytes = number(*states_[n].lengths_at);
                }
                slot.nulls = states_[n].nulls_at ? number(*states_[n].nulls_at) : 0;
            }
        }
        return layout;
    }

    // The first partition that has the codes of a space of dictionary values; none: nobody has.
    [[nodiscard]] std::size_t first_with(PackedLayout const& layout, Space const& space) const {
        auto const codes = static_cast<std::size_t>(space.codes);
        std::size_t p{0};
        while (p < num_partitions_ && layout.slot(codes, p).rows == 0) {
            ++p;
        }
        return p;
    }

    [[nodiscard]] std::vector<PackedData> write(std::span<std::uint32_t const> placement) {
        auto layout = counted_layout();
        auto const sizes = layout.place();
        auto buffers = allocate_device_parts(sizes, placement, br_, AllowOverbooking::yes, stream_);
        if (table_.num_rows() > 0 && !flat_.nodes.empty()) {
            auto const slots = device_slots(layout, buffers);
            Buffer::write_together(buffers, [&](Stream) {
                describe_columns(&layout);
                upload_columns(slots);
                enqueue_writes();
                copy_dictionaries(layout, slots);
            });
        }
        return with_metadata(layout, sizes, std::move(buffers));
    }

    // What has been written to a slab already.
    [[nodiscard]] std::vector<PackedData> split(DeviceSlab slab, std::span<std::uint32_t const> placement) {
        auto layout = counted_layout();
        auto const sizes = layout.place();
        auto buffers = split_slab(std::move(slab), sizes, placement, br_, stream_);
        Buffer::write_together(buffers, [](Stream) {});  // marks the end of what is enqueued
        return with_metadata(layout, sizes, std::move(buffers));
    }

    [[nodiscard]] std::vector<PackedData> with_metadata(
        PackedLayout const& layout, std::span<std::size_t const> sizes,
        std::vector<std::unique_ptr<Buffer>> buffers) const {
        auto const beginning = PackedMetadataWriter::beginning(table_.schema()->serialized());
        std::vector<PackedData> packed;
        packed.reserve(num_partitions_);
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            auto const rows = static_cast<std::int64_t>(known_[spaces_.front().counted_at + p]);
            packed.emplace_back(layout.metadata(p, beginning, rows, sizes[p]), std::move(buffers[p]));
        }
        return packed;
    }

    [[nodiscard]] std::vector<DeviceSlot> device_slots(
        PackedLayout const& layout, std::vector<std::unique_ptr<Buffer>> const& buffers) const {
        std::vector<DeviceSlot> slots(layout.num_nodes() * num_partitions_);
        for (std::size_t n = 0; n < layout.num_nodes(); ++n) {
            for (std::size_t p = 0; p < num_partitions_; ++p) {
                auto const& placed = layout.slot(n, p);
                // The GPU writes there, and the buffers are ours.
                auto* const base =
                    reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(buffers[p]->data()));
                auto const address = [base](std::uint64_t offset) {
                    return offset == ColumnSlot::nowhere ? nullptr : base + offset;
                };
                auto& slot = slots[n * num_partitions_ + p];
                slot.validity = address(placed.validity);
                slot.values = address(placed.values);
                slot.data = address(placed.data);
                slot.validity_bytes = slot.validity == nullptr ? 0 : padded_size((placed.rows + 7) / 8);
                slot.values_bytes = padded_size(values_bytes(layout.field(n), placed.rows));
                slot.data_bytes = padded_size(placed.bytes);
            }
        }
        return slots;
    }

    // What has to be written, and where the addresses are found. With a layout, columns without nulls are left out, and
    // dictionaries go where they are first needed.
    void describe_columns(PackedLayout const* layout = nullptr) {
        columns_.assign(spaces_.size(), {});
        slots_of_.assign(flat_.nodes.size(), nullptr);
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            auto const& space = space_of(n);
            auto const& node = flat_.nodes[n];
            auto const first = space.codes < 0 ? 0 : first_with(*layout, space);
            if (space.rows.rows == 0 || first == num_partitions_) {
                continue;
            }
            slots_of_[n] = slots_ + n * num_partitions_ + first;
            auto& columns = columns_[static_cast<std::size_t>(states_[n].space)];
            if (node.layout == Layout::fixed && node.width > 0) {
                columns.fixed.push_back({node.values, slots_of_[n], node.width});
            } else if (node.layout == Layout::bits) {
                columns.bits.push_back(
                    {static_cast<std::uint8_t const*>(node.values), node.bit_offset, slots_of_[n], false});
            }
            if (states_[n].nulls_at && (layout == nullptr || has_nulls(n))) {
                columns.bits.push_back({node.validity, node.bit_offset, slots_of_[n], true});
            }
        }
    }

    // Of the columns that have been described and uploaded.
    void enqueue_writes() {
        clear_slots(
            slots_, device_nodes_, static_cast<std::uint32_t>(flat_.nodes.size()), num_partitions_, stream_);
        auto const* fixed = fixed_;
        auto const* bits = bits_;
        for (std::size_t s = 0; s < spaces_.size(); ++s) {
            auto const num_fixed = static_cast<std::int32_t>(columns_[s].fixed.size());
            auto const num_bits = static_cast<std::int32_t>(columns_[s].bits.size());
            if (num_fixed > 0) {
                write_fixed(spaces_[s].rows, fixed, num_fixed, stream_);
            }
            if (num_bits > 0) {
                write_bits(spaces_[s].rows, bits, num_bits, stream_);
            }
            fixed += num_fixed;
            bits += num_bits;
        }
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            if (has_offsets(flat_.nodes[n].layout) && slots_of_[n] != nullptr) {
                write_lengths(space_of(n).rows, flat_.nodes[n], states_[n].sums, slots_of_[n], stream_);
            }
        }
    }

    [[nodiscard]] bool has_nulls(std::size_t node) {
        if (!states_[node].nulls_at) {
            return false;
        }
        auto const* const first = known_.data() + *states_[node].nulls_at;
        return std::any_of(
            first, first + space_of(node).rows.num_partitions, [](auto nulls) { return nulls > 0; });
    }

    // Pageable memory is staged before the calls return.
    void upload_columns(std::vector<DeviceSlot> const& slots) {
        std::vector<FixedColumn> fixed;
        std::vector<BitColumn> bits;
        for (auto const& columns : columns_) {
            fixed.insert(fixed.end(), columns.fixed.begin(), columns.fixed.end());
            bits.insert(bits.end(), columns.bits.begin(), columns.bits.end());
        }
        auto& device = br_.device();
        device.copy(slots_, slots.data(), slots.size() * sizeof(DeviceSlot), stream_);
        device.copy(fixed_, fixed.data(), fixed.size() * sizeof(FixedColumn), stream_);
        device.copy(bits_, bits.data(), bits.size() * sizeof(BitColumn), stream_);
    }

    // Dictionaries have been written to the first partition that has codes; the others get copies.
    void copy_dictionaries(PackedLayout const& layout, std::vector<DeviceSlot> const& slots) {
        std::vector<CopyPiece> copies;
        for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
            auto const& space = space_of(n);
            if (space.codes < 0) {
                continue;
            }
            auto const first = first_with(layout, space);
            for (auto p = first + 1; p < num_partitions_; ++p) {
                auto const& from = slots[n * num_partitions_ + first];
                auto const& to = slots[n * num_partitions_ + p];
                if (to.validity != nullptr) {
                    copies.push_back({from.validity, to.validity, to.validity_bytes});
                }
                if (to.values != nullptr) {
                    copies.push_back({from.values, to.values, to.values_bytes});
                }
                if (to.data != nullptr) {
                    copies.push_back({from.data, to.data, to.data_bytes});
                }
            }
        }
        gather_copy_cuda(copies, stream_);
    }

    Table const& table_;
    std::uint32_t num_partitions_;
    BufferResource& br_;
    Stream stream_;
    DeviceNodes flat_;
    std::vector<NodeState> states_;
    std::vector<Space> spaces_;
    std::unique_ptr<Buffer> scratch_;
    struct Columns {
        std::vector<FixedColumn> fixed;
        std::vector<BitColumn> bits;
    };
    std::vector<Columns> columns_;               // to be written, by space
    std::vector<DeviceSlot const*> slots_of_;  // each node's, in the scratch memory
    // In the scratch memory.
    DeviceNode* device_nodes_{nullptr};
    void* extra_{nullptr};
    std::uint64_t* counts_{nullptr};
    void* scan_{nullptr};
    DeviceSlot* slots_{nullptr};
    FixedColumn* fixed_{nullptr};
    BitColumn* bits_{nullptr};
    PlacedColumn* placed_{nullptr};
    std::uint32_t* order_{nullptr};
    std::size_t uploaded_{0};
    std::size_t num_counts_{0};
    std::optional<std::size_t> eager_bytes_;
    std::size_t scan_bytes_{0};
    // Read back.
    std::uint64_t* landed_{nullptr};
    std::vector<std::uint64_t> known_;
    std::uint32_t highest_{0};
};

// The nodes of the key columns of a table. Throws as RowHasher does.
std::vector<std::int32_t> key_nodes(Table const& table, std::span<int const> key_columns) {
    auto const flat = flatten(*table.schema(), table.columns());
    std::vector<std::int32_t> keys;
    for (auto const index : key_columns) {
        RAPIDSMPF_EXPECTS(
            index >= 0 && static_cast<std::size_t>(index) < table.num_columns(),
            "there is no key column number " + std::to_string(index) + " in a table of "
                + std::to_string(table.num_columns()) + " columns",
            std::out_of_range);
        auto const node = flat.columns[static_cast<std::size_t>(index)];
        auto const& field = table.schema()->fields()[static_cast<std::size_t>(index)];
        RAPIDSMPF_EXPECTS(
            nesting(flat.nodes.data(), node) <= max_key_depth,
            "column '" + field.name() + "' (" + field.type_name()
                + ") is nested too deeply to be a key on a GPU",
            std::invalid_argument);
        keys.push_back(node);
    }
    return keys;
}

}  // namespace

std::vector<PackedData> partition_on_gpu(
    Table const& table, std::span<int const> key_columns, std::uint32_t num_partitions, BufferResource& br,
    std::uint64_t seed, std::span<std::uint32_t const> placement) {
    auto const keys = key_nodes(table, key_columns);
    GpuPartitioner partitioner{table, num_partitions, br};
    auto const first_key = keys.empty() ? DeviceNode{} : partitioner.node(keys.front());
    return partitioner.run(std::as_bytes(std::span{keys}), placement, [&] {
        sort_tiles_by_hash(
            partitioner.root(), partitioner.nodes(), static_cast<std::int32_t const*>(partitioner.extra()),
            static_cast<std::int32_t>(keys.size()), first_key, seed, table.stream());
        return RootRows::sorted;
    });
}

std::vector<PackedData> partition_by_column_on_gpu(
    Table const& table, Column const& numbers, std::string const& name, std::uint32_t num_partitions,
    BufferResource& br, std::span<std::uint32_t const> placement) {
    GpuPartitioner partitioner{table, num_partitions, br};
    auto const assign = [&] {
        assign_by_column(
            partitioner.root(), reinterpret_cast<std::uint32_t const*>(numbers.values) + numbers.offset,
            partitioner.highest_address(), table.stream());
        return RootRows::assigned;
    };
    return partitioner.run({}, placement, assign, [&](std::uint32_t highest) {
        RAPIDSMPF_EXPECTS(
            highest < num_partitions || table.num_rows() == 0,
            "column '" + name + "' sends a row to partition " + std::to_string(highest) + " of "
                + std::to_string(num_partitions),
            std::out_of_range);
    });
}

std::vector<PackedData> split_on_gpu(
    Table const& table, std::span<std::int64_t const> splits, BufferResource& br) {
    GpuPartitioner partitioner{table, static_cast<std::uint32_t>(splits.size()) + 1, br};
    return partitioner.run(std::as_bytes(splits), {}, [&] {
        assign_by_splits(
            partitioner.root(), static_cast<std::int64_t const*>(partitioner.extra()), table.stream());
        return RootRows::assigned;
    });
}

void hash_rows_on_gpu(
    Table const& table, std::span<int const> key_columns, std::int64_t first, std::span<std::uint64_t> hashes,
    std::uint64_t seed) {
    auto const keys = key_nodes(table, key_columns);
    auto const rows = table.slice(first, static_cast<std::int64_t>(hashes.size()));
    auto const flat = flatten(*rows.schema(), rows.columns());
    if (hashes.empty()) {
        return;
    }
    auto& device = Device::current();
    auto const stream = table.stream();
    auto const allocate = [&](std::size_t bytes) {
        return std::shared_ptr<void>{device.allocate(bytes, stream), [&device, bytes, stream](void* pointer) {
                                         device.deallocate(pointer, bytes, stream);
                                     }};
    };
    auto const nodes = allocate(flat.nodes.size() * sizeof(DeviceNode));
    auto const key_list = allocate(std::max<std::size_t>(keys.size(), 1) * sizeof(std::int32_t));
    auto const result = allocate(hashes.size_bytes());
    device.copy(nodes.get(), flat.nodes.data(), flat.nodes.size() * sizeof(DeviceNode), stream);
    device.copy(key_list.get(), keys.data(), keys.size() * sizeof(std::int32_t), stream);
    hash_nodes(
        static_cast<DeviceNode const*>(nodes.get()), static_cast<std::int32_t const*>(key_list.get()),
        static_cast<std::int32_t>(keys.size()), rows.num_rows(), seed,
        static_cast<std::uint64_t*>(result.get()), stream);
    device.copy(hashes.data(), result.get(), hashes.size_bytes(), stream);
    device.synchronize(stream);
}

}  // namespace rapidsmpf::detail

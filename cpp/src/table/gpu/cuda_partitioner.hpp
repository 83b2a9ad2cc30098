// Partitions one table on a GPU: plans the steps, enqueues them, and waits once, for the sizes.
//
//   plan       the spaces that rows are in, and one block of scratch memory for all of them
//   count      which partition each row goes to, tiles sorted, lengths and nulls counted
//   read back  the counts of all columns and partitions: the one copy to the host, and the one wait
//   write      final addresses, and every row copied there
//
// Planning and counting are in cuda_partitioner_count.cpp, what is written in cuda_partitioner_write.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/gpu/cuda_staging.hpp"
#include "table/gpu/partition_kernels.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

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
    GpuPartitioner(Table const& table, std::uint32_t num_partitions, BufferResource& br);

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
        std::function<void(std::uint32_t)> const& check_highest = {});
    [[nodiscard]] std::uint32_t* highest_address() const noexcept {
        return reinterpret_cast<std::uint32_t*>(counts_);
    }

  private:
    [[nodiscard]] std::int32_t add_space(
        std::int64_t rows, std::uint32_t num_partitions, std::int32_t parent, std::int32_t list,
        std::int32_t codes);
    void place_node(std::int32_t index, std::int32_t space);
    [[nodiscard]] Space& space_of(std::size_t node) noexcept {
        return spaces_[static_cast<std::size_t>(states_[node].space)];
    }
    // Gives everything its place in the scratch memory.
    void lay_out(Arena& arena, std::size_t extra_bytes);
    // Which numbers are read back, and where they are among them.
    void number_counts();
    // How long the result can get, if it may be written before its sizes are known.
    [[nodiscard]] std::optional<std::size_t> eager_bytes();
    void plan(std::size_t extra_bytes);
    void upload(std::span<std::byte const> extra, std::span<std::uint32_t const> placement);
    void count(RootRows root_rows);
    void count_nulls_of(std::size_t space);
    // Where the rows of each tile go in their partitions. The host does not wait for it.
    void sum_up_rows();
    void start_reading_back();
    void finish_reading_back();
    // What has been read back, as rows, bytes and nulls of each column in each partition.
    [[nodiscard]] PackedLayout counted_layout();
    // The first partition that has the codes of a space of dictionary values; num_partitions_: none has.
    [[nodiscard]] std::size_t first_with(PackedLayout const& layout, Space const& space) const;
    [[nodiscard]] std::vector<PackedData> write(std::span<std::uint32_t const> placement);
    // What has been written to a slab already.
    [[nodiscard]] std::vector<PackedData> split(DeviceSlab slab, std::span<std::uint32_t const> placement);
    [[nodiscard]] std::vector<PackedData> with_metadata(
        PackedLayout const& layout, std::span<std::size_t const> sizes,
        std::vector<std::unique_ptr<Buffer>> buffers) const;
    [[nodiscard]] std::vector<DeviceSlot> device_slots(
        PackedLayout const& layout, std::vector<std::unique_ptr<Buffer>> const& buffers) const;
    // What has to be written, and where the addresses are found. With a layout, columns without nulls are left out, and
    // dictionaries go where they are first needed.
    void describe_columns(PackedLayout const* layout = nullptr);
    // Of the columns that have been described and uploaded.
    void enqueue_writes();
    [[nodiscard]] bool has_nulls(std::size_t node);
    // Pageable memory is staged before the calls return.
    void upload_columns(std::vector<DeviceSlot> const& slots);
    // Dictionaries have been written to the first partition that has codes; the others get copies.
    void copy_dictionaries(PackedLayout const& layout, std::vector<DeviceSlot> const& slots);

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
    std::vector<Columns> columns_;             // to be written, by space
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

}  // namespace rapidsmpf::detail

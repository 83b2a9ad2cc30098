// Writes what a PackPlan has counted: allocates the partitions, and copies each row once to its final place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/host/pack_plan.hpp"
#include "table/host/scatter.hpp"

namespace rapidsmpf::detail {

class PackWriter {
  public:
    // Allocates, and writes the dictionaries. `order`: of the partitions in memory, as in partition_and_pack. Throws
    // ReservationError, and std::invalid_argument when a column outgrows its offsets.
    PackWriter(
        PackPlan plan, std::span<std::uint32_t const> order, BufferResource& br, AllowOverbooking allow);

    // Each source table of the plan once, in their order, with the selections that were counted.
    void write(Table const& table, std::span<IndexSelection const> blocks);
    void write(Table const& table, std::span<RangeSelection const> blocks);

    // After the last source table.
    [[nodiscard]] std::vector<PackedData> finish() &&;

  private:
    [[nodiscard]] ColumnWriter* writers(std::size_t node) noexcept {
        return writers_.data() + node * plan_.num_partitions();
    }
    void place_writers();
    void write_dictionaries();
    void start_source(std::size_t node, Column const& column);
    template <typename Selection>
    void write_blocks(Table const& table, std::span<Selection const> blocks);
    template <typename Selection>
    void write_node(std::size_t node, Column const& column, Selection const& selection);
    template <typename Run>
    void append_values(
        std::size_t node, std::size_t partition, ColumnWriter& to, Column const& column, Run const& run);
    template <typename Run>
    void append_codes(
        std::size_t node, std::size_t partition, ColumnWriter& to, Column const& column, Run const& run);

    PackPlan plan_;
    std::vector<std::unique_ptr<Buffer>> buffers_;  // by partition
    std::vector<ColumnWriter> writers_;             // by node, then partition
    // View columns whose buffers are copied as a whole: where those of the present source have gone, by node, then partition.
    std::vector<std::vector<std::vector<MovedBuffer>>> moved_;
    std::vector<DictionaryPlan*> dictionary_of_;  // by node; null: it has none
    ColumnWalk walk_;
    std::size_t source_{0};
    Stores stores_{Stores::cached};
};

// Both passes for one table. `Selection`: IndexSelection or RangeSelection.
template <typename Selection>
[[nodiscard]] std::vector<PackedData> pack_partitions(
    Table const& table, std::size_t num_partitions, std::span<Selection const> blocks,
    std::span<std::uint32_t const> order, BufferResource& br) {
    PackWriter writer{plan_partitions(table, num_partitions, blocks), order, br, AllowOverbooking::yes};
    writer.write(table, blocks);
    return std::move(writer).finish();
}

}  // namespace rapidsmpf::detail

// Which partition a row goes to.
//
// A RowRouting is the rule as a plan states it, by column names; bind() checks it against a schema and gives what
// packs tables into partitions by it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/schema.hpp>

namespace rapidsmpf::streaming {

class RowRouting {
  public:
    // By the hash of these columns: rows with equal keys meet, whichever rank they come from. Throws
    // std::invalid_argument when there are none.
    // `form`: how rows are packed. Tables on a GPU are always packed plain.
    [[nodiscard]] static RowRouting by_hash(
        std::vector<std::string> keys, std::uint64_t seed = 0, RowForm form = RowForm::plain);
    // By the number in this column (uint32, no nulls), which stays in the rows.
    [[nodiscard]] static RowRouting by_column(std::string column, RowForm form = RowForm::plain);
    // All rows to one partition.
    [[nodiscard]] static RowRouting to_partition(coll::PartitionId partition);

    // The partitions of a table that have rows, ascending.
    using Packed = std::vector<std::pair<coll::PartitionId, PackedData>>;
    using Packer = std::function<Packed(TableBatch const&)>;

    // Throws std::invalid_argument when a column is not in the schema, std::out_of_range when the partition does not
    // exist. The packer may be called by several threads at a time; it keeps neither argument's owner alive but the
    // resource. `placement` as in partition_and_pack.
    [[nodiscard]] Packer bind(
        Schema const& schema, std::uint32_t num_partitions, std::vector<std::uint32_t> placement,
        std::shared_ptr<BufferResource> resource) const;

  private:
    enum class Kind : std::uint8_t { hash, column, partition };
    RowRouting(
        Kind kind, std::vector<std::string> columns, std::uint64_t seed, coll::PartitionId partition,
        RowForm form);

    Kind kind_;
    std::vector<std::string> columns_;
    std::uint64_t seed_;
    coll::PartitionId partition_;
    RowForm form_;
};

}  // namespace rapidsmpf::streaming

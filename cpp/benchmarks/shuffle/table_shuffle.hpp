// A shuffle from tables to tables, whole and by its parts, wherever the tables are.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "job.hpp"

namespace rapidsmpf::bench {

class TableShuffle {
  public:
    using Pieces = std::vector<std::pair<coll::PartitionId, PackedData>>;

    // `per_rank`: partitions of each rank; the benchmark partitions `batches` one after the other.
    TableShuffle(Job& job, BufferResource& br, std::vector<Table> batches, std::size_t per_rank);

    // Partition and pack, shuffle, unpack; with what has been started on a GPU.
    [[nodiscard]] Taken end_to_end(std::vector<Table>& out, ValidateData validate);
    [[nodiscard]] Taken partition_alone();
    // The shuffle of pieces that are there.
    [[nodiscard]] Taken exchange_alone(std::vector<std::vector<PackedData>>& out);

  private:
    // Pieces without rows travel, too, as they do from an engine that does not look for them.
    [[nodiscard]] Pieces cut(Table const& batch);
    [[nodiscard]] std::vector<Pieces> cut_all();
    [[nodiscard]] std::unique_ptr<coll::Shuffler> open() const;

    Job& job_;
    BufferResource& br_;
    std::uint32_t partitions_;
    std::vector<Table> batches_;
    std::vector<std::uint32_t> placement_;  // partitions of one rank lie one after the other
};

}  // namespace rapidsmpf::bench

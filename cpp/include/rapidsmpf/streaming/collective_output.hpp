// Pulling the rows of a collective as batches: what an output stream or an output actor hands on.
//
// Each owns its handle of the collective and lets go of it as soon as the last row was taken, or when it is destroyed;
// neither blocks other ranks. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/streaming/task.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::streaming {

class PackedBatches;

enum class PartitionOrder : std::uint8_t {
    completion,  // whichever partition is complete first
    ascending,   // by partition number
};

// The rows of this rank's partitions of a shuffle; within a partition by source rank, then as inserted there.
class ShuffleOutput {
  public:
    ShuffleOutput(
        std::shared_ptr<coll::Shuffler> shuffler, std::shared_ptr<Schema const> schema,
        std::shared_ptr<BufferResource> resource, PartitionOrder order = PartitionOrder::completion,
        BatchSizes const& sizes = BatchSizes());
    ~ShuffleOutput();
    ShuffleOutput(ShuffleOutput&&) noexcept;
    ShuffleOutput& operator=(ShuffleOutput&&) noexcept;

    // The next batch; blocks until a partition is complete; nothing at the end. Throws what the Shuffler's waits throw:
    // RankFailedError when a rank fails, TimeoutError (and may be called again).
    [[nodiscard]] std::optional<Table> next(coll::Timeout timeout = {});
    // The same without a thread that waits for other ranks; rows that were spilled are read back on a thread for blocking calls.
    [[nodiscard]] Task<std::optional<Table>> async_next(
        std::shared_ptr<Executor> executor, CancellationToken cancellation = CancellationToken());
    // The partition that the last batch came from.
    [[nodiscard]] coll::PartitionId partition() const noexcept { return partition_; }

  private:
    std::shared_ptr<coll::Shuffler> shuffler_;
    PartitionOrder order_;
    std::unique_ptr<PackedBatches> batches_;
    std::vector<coll::PartitionId> partitions_;
    std::size_t taken_{0};  // partitions whose chunks have been added to batches_
    coll::PartitionId partition_{0};
};

// The rows of one partition of a shuffle, by source rank, then as inserted there.
class PartitionOutput {
  public:
    // The partition must be one of this rank's. Not all partitions that have an output need be read.
    PartitionOutput(
        std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
        std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource,
        BatchSizes const& sizes = BatchSizes());
    ~PartitionOutput();
    PartitionOutput(PartitionOutput&&) noexcept;
    PartitionOutput& operator=(PartitionOutput&&) noexcept;

    // The next batch; the first call blocks until the partition is complete; nothing at the end. Throws like
    // ShuffleOutput::next().
    [[nodiscard]] std::optional<Table> next(coll::Timeout timeout = {});

  private:
    std::shared_ptr<coll::Shuffler> shuffler_;  // none once its rows were taken
    coll::PartitionId partition_;
    std::unique_ptr<PackedBatches> batches_;
};

// The rows of all ranks, by rank and then by sequence number.
class AllGatherOutput {
  public:
    AllGatherOutput(
        std::shared_ptr<coll::AllGather> allgather, std::shared_ptr<Schema const> schema,
        std::shared_ptr<BufferResource> resource, BatchSizes const& sizes = BatchSizes());
    ~AllGatherOutput();
    AllGatherOutput(AllGatherOutput&&) noexcept;
    AllGatherOutput& operator=(AllGatherOutput&&) noexcept;

    // The next batch; the first call blocks until every rank has finished; nothing at the end. Throws like
    // ShuffleOutput::next().
    [[nodiscard]] std::optional<Table> next(coll::Timeout timeout = {});
    // As ShuffleOutput::async_next().
    [[nodiscard]] Task<std::optional<Table>> async_next(
        std::shared_ptr<Executor> executor, CancellationToken cancellation = CancellationToken());

  private:
    std::shared_ptr<coll::AllGather> allgather_;
    std::unique_ptr<PackedBatches> batches_;
};

}  // namespace rapidsmpf::streaming

// Arrow streams into collectives and out of them: what an engine calls between two fragments of a query.
//
// The drain functions block until the local source is exhausted: one thread pulls the source while those of the context
// partition and insert its rows. Call them without the GIL, from a thread that is not one of
// the context's executor. When one throws (what the source, packing or the collective threw), insert_finished() has not
// been called, so that the other ranks cannot take a part of the rows for all of them: fail the communicator.
//
// The output streams hand out batches of bounded size whose memory is freed when the consumer releases them. get_next
// blocks until rows are there and fails with the error's text (RankFailedError's when a rank failed). A stream that
// is released unread releases its collective and does not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/streaming/collective_output.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/row_routing.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/schema.hpp>

namespace rapidsmpf::streaming {

// What a source gave.
struct Drained {
    Drained(std::shared_ptr<Schema const> schema_, std::int64_t rows_, std::size_t bytes_)
        : schema{std::move(schema_)}, rows{rows_}, bytes{bytes_} {}
    std::shared_ptr<Schema const> schema;
    std::int64_t rows;
    std::size_t bytes;  // approximate size of the unpacked rows, including those that stay on this rank
};

// Inserts the rows of `source` into the partitions that `routing` gives them, in their order, and says
// insert_finished().
[[nodiscard]] Drained drain_into_shuffle(
    ArrowStreamOwner source, RowRouting const& routing, std::shared_ptr<coll::Shuffler> shuffler,
    Context const& context, BatchSizes const& sizes = BatchSizes());

// Inserts the rows of `source` in their order and says insert_finished().
[[nodiscard]] Drained drain_into_allgather(
    ArrowStreamOwner source, std::shared_ptr<coll::AllGather> allgather, Context const& context,
    BatchSizes const& sizes = BatchSizes());

// The rows of this rank's partitions. The schema is that of the drained sources, the same on all ranks.
[[nodiscard]] ArrowStreamOwner shuffle_output_stream(
    std::shared_ptr<coll::Shuffler> shuffler, std::shared_ptr<Schema const> schema, Context const& context,
    PartitionOrder order = PartitionOrder::completion, BatchSizes const& sizes = BatchSizes());

// The rows of one of this rank's partitions, which are taken out of the shuffle when the first batch is asked for: until
// then they may be spilled.
[[nodiscard]] ArrowStreamOwner partition_output_stream(
    std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    std::shared_ptr<Schema const> schema, Context const& context, BatchSizes const& sizes = BatchSizes());

// The rows of all ranks, in rank order and within a rank in the order of its source.
[[nodiscard]] ArrowStreamOwner allgather_output_stream(
    std::shared_ptr<coll::AllGather> allgather, std::shared_ptr<Schema const> schema, Context const& context,
    BatchSizes const& sizes = BatchSizes());

}  // namespace rapidsmpf::streaming

// Exchanges between the fragments of a query, for Python. None of these needs the GIL.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/collectives.hpp>
#include <rapidsmpf_python/tables.hpp>

#include <rapidsmpf/streaming/detail/row_store.hpp>
#include <rapidsmpf/streaming/exchange_stream.hpp>

namespace rapidsmpf::python {

using RoutingPointer = std::shared_ptr<streaming::RowRouting const>;

[[nodiscard]] inline RoutingPointer route_by_hash(
    std::vector<std::string> keys, std::uint64_t seed, bool narrow) {
    return std::make_shared<streaming::RowRouting const>(
        streaming::RowRouting::by_hash(std::move(keys), seed, narrow ? RowForm::narrow : RowForm::plain));
}
[[nodiscard]] inline RoutingPointer route_by_column(std::string column, bool narrow) {
    return std::make_shared<streaming::RowRouting const>(
        streaming::RowRouting::by_column(std::move(column), narrow ? RowForm::narrow : RowForm::plain));
}
[[nodiscard]] inline RoutingPointer route_to_partition(coll::PartitionId partition) {
    return std::make_shared<streaming::RowRouting const>(streaming::RowRouting::to_partition(partition));
}

using DrainedPointer = std::shared_ptr<streaming::Drained const>;

// Ctrl-C ends the drains at the source's next batch.
[[nodiscard]] inline DrainedPointer drain_shuffle(
    ArrowStreamOwner source, streaming::RowRouting const& routing, std::shared_ptr<coll::Shuffler> shuffler,
    streaming::Context const& context) {
    return run_interruptibly([&](std::atomic<bool> const& cancelled) {
        return std::make_shared<streaming::Drained const>(streaming::drain_into_shuffle(
            cancellable(std::move(source), cancelled), routing, std::move(shuffler), context));
    });
}

[[nodiscard]] inline DrainedPointer drain_allgather(
    ArrowStreamOwner source, std::shared_ptr<coll::AllGather> gather, streaming::Context const& context) {
    return run_interruptibly([&](std::atomic<bool> const& cancelled) {
        return std::make_shared<streaming::Drained const>(streaming::drain_into_allgather(
            cancellable(std::move(source), cancelled), std::move(gather), context));
    });
}

[[nodiscard]] inline ArrowStreamOwner shuffle_stream(
    std::shared_ptr<coll::Shuffler> shuffler, std::shared_ptr<Schema const> schema,
    streaming::Context const& context, bool ascending) {
    return streaming::shuffle_output_stream(
        std::move(shuffler), std::move(schema), context,
        ascending ? streaming::PartitionOrder::ascending : streaming::PartitionOrder::completion);
}

[[nodiscard]] inline ArrowStreamOwner partition_stream(
    std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    std::shared_ptr<Schema const> schema, streaming::Context const& context) {
    return streaming::partition_output_stream(std::move(shuffler), partition, std::move(schema), context);
}

[[nodiscard]] inline ArrowStreamOwner allgather_stream(
    std::shared_ptr<coll::AllGather> gather, std::shared_ptr<Schema const> schema,
    streaming::Context const& context) {
    return streaming::allgather_output_stream(std::move(gather), std::move(schema), context);
}

// The rows of one of this rank's partitions, once it is complete.
[[nodiscard]] inline std::shared_ptr<streaming::RowStore> store_partition(
    std::shared_ptr<coll::Shuffler> const& shuffler, coll::PartitionId partition,
    std::shared_ptr<Schema const> schema, streaming::Context const& context) {
    wait_on(*shuffler, partition, std::numeric_limits<double>::infinity());
    return std::make_shared<streaming::RowStore>(
        std::move(schema), context.resource(), shuffler->extract(partition));
}

[[nodiscard]] inline ArrowStreamOwner store_stream(std::shared_ptr<streaming::RowStore> store, bool take) {
    return streaming::row_store_stream(
        std::move(store), take ? streaming::StoreUse::take : streaming::StoreUse::read);
}

}  // namespace rapidsmpf::python

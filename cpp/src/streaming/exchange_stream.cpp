#include <rapidsmpf/streaming/exchange_stream.hpp>

#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/partition.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::streaming {

namespace {

// What may be read ahead of the threads that partition: a batch each to work on and one to go on with.
ChannelCapacity read_ahead(Context const& context) {
    constexpr std::size_t bytes = std::size_t{256} << 20;
    return ChannelCapacity{2 * context.executor()->num_threads(), bytes};
}

void drain(
    Context const& context, std::shared_ptr<TableReader> reader, BatchSizes const& sizes,
    std::function<Actor(ChannelPtr)> const& make_input) {
    auto const channel = context.create_channel(read_ahead(context));
    std::vector<Actor> actors;
    actors.push_back(arrow_source(context, std::move(reader), channel, sizes));
    actors.push_back(make_input(channel));
    run_actor_network(*context.executor(), std::move(actors));
}

// `Output` is a ShuffleOutput, a PartitionOutput or an AllGatherOutput.
template <typename Output>
ArrowStreamOwner as_stream(std::shared_ptr<Schema const> schema, std::shared_ptr<Output> output) {
    ArrowStreamOwner stream;
    export_table_stream(
        std::move(schema), [output = std::move(output)] { return output->next(); }, stream.out());
    return stream;
}

}  // namespace

Drained drain_into_shuffle(
    ArrowStreamOwner source, RowRouting const& routing, std::shared_ptr<coll::Shuffler> shuffler,
    Context const& context, BatchSizes const& sizes) {
    auto reader = std::make_shared<TableReader>(std::move(source));
    auto schema = reader->schema();
    auto inserter =
        std::make_shared<ShuffleInserter>(std::move(shuffler), routing, *schema, context.resource());
    drain(context, std::move(reader), sizes, [&](ChannelPtr channel) {
        return shuffle_input(context, std::move(channel), inserter);
    });
    return Drained{std::move(schema), inserter->inserted().rows(), inserter->inserted().bytes()};
}

Drained drain_into_allgather(
    ArrowStreamOwner source, std::shared_ptr<coll::AllGather> allgather, Context const& context,
    BatchSizes const& sizes) {
    auto reader = std::make_shared<TableReader>(std::move(source));
    auto schema = reader->schema();
    auto inserted = std::make_shared<Inserted>();
    drain(context, std::move(reader), sizes, [&](ChannelPtr channel) {
        return allgather_input(context, std::move(channel), allgather, inserted);
    });
    return Drained{std::move(schema), inserted->rows(), inserted->bytes()};
}

ArrowStreamOwner shuffle_output_stream(
    std::shared_ptr<coll::Shuffler> shuffler, std::shared_ptr<Schema const> schema, Context const& context,
    PartitionOrder order, BatchSizes const& sizes) {
    auto output =
        std::make_shared<ShuffleOutput>(std::move(shuffler), schema, context.resource(), order, sizes);
    return as_stream(std::move(schema), std::move(output));
}

ArrowStreamOwner partition_output_stream(
    std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    std::shared_ptr<Schema const> schema, Context const& context, BatchSizes const& sizes) {
    auto output =
        std::make_shared<PartitionOutput>(std::move(shuffler), partition, schema, context.resource(), sizes);
    return as_stream(std::move(schema), std::move(output));
}

ArrowStreamOwner allgather_output_stream(
    std::shared_ptr<coll::AllGather> allgather, std::shared_ptr<Schema const> schema, Context const& context,
    BatchSizes const& sizes) {
    auto output = std::make_shared<AllGatherOutput>(std::move(allgather), schema, context.resource(), sizes);
    return as_stream(std::move(schema), std::move(output));
}

}  // namespace rapidsmpf::streaming

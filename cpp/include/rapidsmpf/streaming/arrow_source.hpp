// The actor that reads a stream of tables (a query engine's output) into a channel.
#pragma once

#include <memory>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::streaming {

// Sends the reader's rows as messages of TableBatch with sequence numbers 0, 1, ...: small tables grouped, large ones
// split, none without rows. Reads on a thread where blocking is allowed, ahead of the consumer up to the channel's
// capacity. Closes the reader at the end of the stream and when the channel is shut down.
[[nodiscard]] Actor arrow_source(
    Context const& context, std::shared_ptr<TableReader> reader, ChannelPtr out,
    BatchSizes const& sizes = BatchSizes());

}  // namespace rapidsmpf::streaming

// Actors that many networks have: into channels and out of them, and what happens to tables on the way.
//
//     std::vector<Actor> actors;
//     actors.push_back(scan(context, files, open_file, rows));
//     actors.push_back(map(context, rows, selected, select_columns));
//     actors.push_back(repartition(context, selected, out));
//     // and `out` is read as an Arrow stream: channel_stream(context, out, schema)
//
// Functions given by the user run on the coroutine threads, one call at a time for each actor, and must not block; those of scan()
// may: they run on threads of their own. What they throw ends the network. Messages keep their sequence numbers unless it
// says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/collective_output.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/schema.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::streaming {

// Sends these messages.
[[nodiscard]] Actor push_to_channel(ChannelPtr out, std::vector<Message> messages);
// Takes all messages; they are in `messages` when the network has ended.
[[nodiscard]] Actor pull_from_channel(ChannelPtr in, std::shared_ptr<std::vector<Message>> messages);

// Sends function(message) for each.
[[nodiscard]] Actor map(
    Context const& context, ChannelPtr in, ChannelPtr out, std::function<Message(Message)> function);
// The same for rows: messages of Table or TableBatch come in, of Table go out.
[[nodiscard]] Actor map_tables(
    Context const& context, ChannelPtr in, ChannelPtr out, std::function<Table(Table)> function);
// Sends on the messages that wanted(message) is true for.
[[nodiscard]] Actor filter(
    Context const& context, ChannelPtr in, ChannelPtr out, std::function<bool(Message const&)> wanted);

// Rows in the order in which they come, in tables of these sizes, numbered 0, 1, ...; Table or TableBatch come in, Table go
// out. Memory for concatenated tables is waited for (memory_wait.hpp).
[[nodiscard]] Actor repartition(
    Context const& context, ChannelPtr in, ChannelPtr out, BatchSizes const& sizes = BatchSizes());
// All rows as one table, number 0; none: nothing is sent.
[[nodiscard]] Actor concat_tables(Context const& context, ChannelPtr in, ChannelPtr out);

// Opens one source of rows: a file of Parquet, with the reader of one's choice. May block.
using OpenTables = std::function<ArrowStreamOwner(std::string const& path)>;
// Reads the paths, `readers` at a time, and sends messages of TableBatch, numbered in the order in which they are made: by path and
// then by row with one reader. Throws std::invalid_argument when there are no readers.
[[nodiscard]] Actor scan(
    Context const& context, std::vector<std::string> paths, OpenTables open, ChannelPtr out,
    std::size_t readers = 1, BatchSizes const& sizes = BatchSizes());

// The rows of a channel (messages of Table or TableBatch) as an Arrow stream, for a thread that is not one of the executor. The network
// runs elsewhere: its error is the stream's. A stream that is released shuts the channel.
[[nodiscard]] ArrowStreamOwner channel_stream(
    Context const& context, ChannelPtr in, std::shared_ptr<Schema const> schema);

// Sends the reader's rows as messages of TableBatch with sequence numbers 0, 1, ...: small tables grouped, large ones
// split, none without rows. Reads on a thread where blocking is allowed, ahead of the consumer up to the channel's
// capacity. Closes the reader at the end of the stream and when the channel is shut down.
[[nodiscard]] Actor arrow_source(
    Context const& context, std::shared_ptr<TableReader> reader, ChannelPtr out,
    BatchSizes const& sizes = BatchSizes());

// Sends this rank's rows of a shuffle as messages of Table, numbered 0, 1, ..., each partition as soon as it is complete. Keeps no
// thread while it waits for other ranks.
[[nodiscard]] Actor shuffle_output(
    Context const& context, std::shared_ptr<ShuffleOutput> output, ChannelPtr out);
// The rows of all ranks, in order.
[[nodiscard]] Actor allgather_output(
    Context const& context, std::shared_ptr<AllGatherOutput> output, ChannelPtr out);

enum class FanoutPolicy : std::uint8_t {
    bounded,  // the slowest consumer sets the pace of all: for consumers that read side by side
    unbounded,  // what a consumer has not received yet waits for it, and may be spilled: for those that read in any order
};

// One stream of messages for several consumers. Each gets every message, in order: the last the message itself, the others
// copies, deep ones within a reservation where the payload owns memory (Message::copy). A consumer that shuts its channel gets
// no more, and the others go on. Metadata of `in` goes to all, too. Throws std::invalid_argument when there are no outputs.
[[nodiscard]] Actor fanout(
    Context const& context, ChannelPtr in, std::vector<ChannelPtr> outs,
    FanoutPolicy policy = FanoutPolicy::bounded);

}  // namespace rapidsmpf::streaming

"""A network of actors on every rank: scan, select, filter, shuffle between the ranks, aggregate, sink.

Under `rrun -n 2 python examples/streaming_network.py`; alone it runs on one rank. No more than a few pieces of the
table are in memory at a time, besides what waits in the shuffle, which may be spilled.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from polars.testing import assert_frame_equal
from rapidsmpf import bootstrap
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.streaming.chunks.packed_data import PackedDataChunk
from rapidsmpf.streaming.chunks.table import TableChunk
from rapidsmpf.streaming.coll.allgather import AllGather
from rapidsmpf.streaming.coll.shuffler import ShufflerAsync
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.channel import Channel
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.message import Message
from rapidsmpf.table import pack, partition_and_pack, unpack_and_concat

Work = Callable[[pl.DataFrame], pl.DataFrame]
ROWS, PIECE, KEYS, PARTITIONS = 400_000, 20_000, 100, 16


def piece(begin: int) -> pl.DataFrame:
    """Return the rows from `begin` on, as a file would give them."""
    i = pl.int_range(begin, begin + PIECE, eager=True)
    return pl.DataFrame({"key": i * 7919 % KEYS, "value": i % 1000, "unused": i})


@define_actor()
async def scan(ctx: Context, ch_out: Channel[TableChunk]) -> None:
    comm = ctx.comm()
    for number, begin in enumerate(range(comm.rank * PIECE, ROWS, comm.nranks * PIECE)):
        if not await ch_out.send(ctx, Message(number, TableChunk(piece(begin), ctx.br()))):
            return


@define_actor()
async def select(ctx: Context, ch_in: Channel[TableChunk], ch_out: Channel[TableChunk], work: Work) -> None:
    async for message in ch_in:
        frame = pl.DataFrame(TableChunk.from_message(message, ctx.br()).table_view())
        await ch_out.send(ctx, Message(message.sequence_number, TableChunk(work(frame), ctx.br())))


@define_actor()
async def shuffle(ctx: Context, ch_in: Channel[TableChunk], ch_out: Channel[TableChunk]) -> None:
    shuffler = ShufflerAsync(ctx, None, op_id=1, total_num_partitions=PARTITIONS)
    async for message in ch_in:
        table = TableChunk.from_message(message, ctx.br()).table_view()
        shuffler.insert(partition_and_pack(table, ["key"], PARTITIONS, ctx.br()))
    await shuffler.insert_finished(ctx)
    while (found := await shuffler.extract_any_async(ctx)) is not None:
        pid, chunks = found
        if chunks:
            await ch_out.send(ctx, Message(pid, TableChunk(unpack_and_concat(chunks, ctx.br()), ctx.br())))


@define_actor()
async def sink(ctx: Context, ch_in: Channel[TableChunk], result: list[pl.DataFrame]) -> None:
    gather = AllGather(ctx, None, op_id=2)
    async for message in ch_in:
        rows = TableChunk.from_message(message, ctx.br()).table_view()
        gather.insert(message.sequence_number, pack(rows, ctx.br()))
    gather.insert_finished()
    chunks = [PackedDataChunk.from_packed_data(each) for each in await gather.extract_all(ctx)]
    result.append(pl.DataFrame(unpack_and_concat([each.to_packed_data() for each in chunks], ctx.br())))


def main() -> None:
    options = Options(
        {"num_streaming_threads": "2", "spill_device_limit": "256 MiB", "periodic_spill_check": "1ms"}
    )
    if bootstrap.is_running_with_rrun():
        comm = bootstrap.create_ucxx_comm(options=options)
    else:
        comm = single.new_communicator(options)
    with Context.from_options(comm, options) as ctx:
        rows, selected, filtered, shuffled, sums = (ctx.create_channel(messages=2) for _ in range(5))
        result: list[pl.DataFrame] = []
        run_actor_network(
            ctx,
            actors=[
                scan(ctx, rows),
                select(ctx, rows, selected, lambda frame: frame.select("key", "value")),
                select(ctx, selected, filtered, lambda frame: frame.filter(pl.col("value") >= 10)),
                shuffle(ctx, filtered, shuffled),
                select(
                    ctx, shuffled, sums, lambda frame: frame.group_by("key").agg(pl.sum("value"), pl.len())
                ),
                sink(ctx, sums, result),
            ],
        )
    whole = pl.concat(piece(begin) for begin in range(0, ROWS, PIECE))
    expected = whole.filter(pl.col("value") >= 10).group_by("key").agg(pl.sum("value"), pl.len())
    assert_frame_equal(result[0].sort("key"), expected.sort("key"))
    print(f"rank {comm.rank} of {comm.nranks}: {result[0].height} groups of {ROWS} rows")


if __name__ == "__main__":
    main()

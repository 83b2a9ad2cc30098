"""Collectives, memory and kept messages that coroutines await."""

from __future__ import annotations

import asyncio
import gc

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError, ReservationError
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.streaming.chunks.packed_data import PackedDataChunk
from rapidsmpf.streaming.coll.allgather import AllGather
from rapidsmpf.streaming.coll.allreduce import allreduce
from rapidsmpf.streaming.coll.shuffler import ShufflerAsync
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.memory_reserve_or_wait import MemoryReserveOrWait, reserve_memory
from rapidsmpf.streaming.core.message import Message
from rapidsmpf.streaming.core.spillable_messages import SpillableMessages
from rapidsmpf.table import partition_and_pack, unpack_and_concat

from support.cluster import on_ranks

OPTIONS = Options({"num_streaming_threads": "2"})


def run(comm, work):
    """Run the coroutine `work(ctx)` as an actor, and return its result."""
    result = []

    @define_actor()
    async def actor(ctx):
        result.append(await work(ctx))

    with Context.from_options(comm, OPTIONS) as ctx:
        run_actor_network(actors=[actor(ctx)])
    return result[0]


@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("any_partition", [True, False])
def test_shuffle(nranks, any_partition):
    frame = pl.DataFrame({"k": [i % 13 for i in range(1000)], "i": range(1000)})

    async def work(ctx):
        comm = ctx.comm()
        shuffler = ShufflerAsync(ctx, None, 3, 5)
        assert shuffler.comm is comm
        mine = frame[comm.rank :: comm.nranks]
        shuffler.insert(partition_and_pack(mine, ["k"], 5, ctx.br()))
        await shuffler.insert_finished(ctx)
        parts = {}
        if any_partition:
            while (found := await shuffler.extract_any_async(ctx)) is not None:
                parts[found[0]] = found[1]
        else:
            for pid in shuffler.local_partitions():
                parts[pid] = await shuffler.extract_async(ctx, pid)
        assert sorted(parts) == shuffler.local_partitions()
        return [pl.DataFrame(unpack_and_concat(chunks, ctx.br())) for chunks in parts.values() if chunks]

    parts = [part for rank in on_ranks(nranks, lambda comm: run(comm, work)) for part in rank]
    assert_frame_equal(pl.concat(parts).sort("i"), frame)
    keys = [key for part in parts for key in part["k"].unique()]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("nranks", [1, 2])
def test_allgather_and_allreduce(nranks):
    async def work(ctx):
        comm = ctx.comm()
        gather = AllGather(ctx, None, 1)
        for number in (1, 0):
            gather.insert(number, PackedData.from_host_bytes(f"{comm.rank}.{number}".encode(), ctx.br()))
        gather.insert_finished()
        # Both at a time, in other orders on the ranks.
        waits = [gather.extract_all(ctx), allreduce(ctx, None, 2, comm.rank + 1)]
        chunks, total = await asyncio.gather(*waits)
        return [chunk.to_host_bytes().decode() for chunk in chunks], total

    everything = [f"{rank}.{number}" for rank in range(nranks) for number in range(2)]
    assert on_ranks(nranks, lambda comm: run(comm, work)) == [(everything, sum(range(nranks + 1)))] * nranks


def test_a_failed_rank_ends_the_waits_of_others():
    async def work(ctx):
        shuffler = ShufflerAsync(ctx, None, 3, 2)
        if ctx.comm().rank == 1:
            raise KeyError("no rows")
        await shuffler.insert_finished(ctx)
        return await shuffler.extract_any_async(ctx)

    errors = {}

    def rank(comm):
        try:
            run(comm, work)
        except BaseException as error:
            errors[comm.rank] = error
            raise

    with pytest.raises((KeyError, RankFailedError)):
        on_ranks(2, rank)
    assert isinstance(errors[0], RankFailedError)
    assert isinstance(errors[1], KeyError)


@pytest.mark.parametrize("collective", ["shuffle", "allgather"])
def test_the_errors_of_other_ranks_name_the_cause(collective):
    async def work(ctx):
        if collective == "shuffle":
            shuffler = ShufflerAsync(ctx, None, 3, 2)
            insert_finished, end = shuffler.insert_finished, shuffler.extract_any_async
        else:
            gather = AllGather(ctx, None, 3)
            end = gather.extract_all

            async def insert_finished(ctx):
                gather.insert_finished()

        if ctx.comm().rank == 1:
            raise KeyError("no rows")
        await insert_finished(ctx)
        return await end(ctx)

    def rank(comm):
        # Rank 1 goes on: that its network failed is all that the others hear of it.
        kind = KeyError if comm.rank == 1 else RankFailedError
        with pytest.raises(kind) as caught:
            run(comm, work)
        text = str(caught.value)
        del caught
        gc.collect()
        # The communicator is as good as before.
        assert run(comm, lambda ctx: allreduce(ctx, None, 4, comm.rank)) == 1
        return text

    text = on_ranks(2, rank)[0]
    assert "rank 1" in text
    assert "KeyError: 'no rows'" in text


def test_a_cancelled_wait_ends_at_once():
    async def work(ctx):
        shuffler = ShufflerAsync(ctx, None, 3, 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shuffler.extract_any_async(ctx), 0.05)
        return True

    assert on_ranks(1, lambda comm: run(comm, work)) == [True]


def limited(limit):
    br = BufferResource(None, memory_available={MemoryType.HOST: lambda: limit})
    return Context(None, br, Options({"memory_reserve_timeout": "50ms"}))


def test_memory_is_waited_for():
    with limited(1000) as ctx:

        async def main():
            first = await reserve_memory(ctx, 800, mem_type=MemoryType.HOST, allow_overbooking=False)
            assert (first.size, first.br) == (800, ctx.br())
            waiter = MemoryReserveOrWait(None, MemoryType.HOST, ctx)
            with pytest.raises(ReservationError):
                await waiter.reserve_or_wait_or_fail(500)
            assert (await waiter.reserve_or_wait_or_overbook(500)).size == 500
            waiting = asyncio.create_task(waiter.reserve_or_wait_or_fail(500))
            await asyncio.sleep(0)
            first.clear()
            assert (await waiting).size == 500
            assert (await waiter.reserve_or_wait(100)).size == 100

        asyncio.run(main())


def test_kept_messages_are_extracted_as_they_were():
    with Context.from_options(None, OPTIONS) as ctx:
        br = ctx.br()
        kept = SpillableMessages(ctx)

        def message(i):
            return Message(i, PackedDataChunk.from_packed_data(PackedData.from_host_bytes(b"x" * i, br)))

        ids = [kept.insert(message(i)) for i in range(1, 20)]
        assert len(kept) == 19
        assert kept.nbytes(ids[4]) == 5
        kept.spill(100)

        async def main():
            return [await kept.extract(mid) for mid in reversed(ids)]

        messages = asyncio.run(main())
        assert [each.sequence_number for each in messages] == list(range(19, 0, -1))
        for each in messages:
            data = PackedDataChunk.from_message(each).to_packed_data().to_host_bytes()
            assert data == b"x" * len(data)
        assert len(kept) == 0

        async def again():
            await kept.extract(ids[0])

        with pytest.raises(IndexError):
            asyncio.run(again())

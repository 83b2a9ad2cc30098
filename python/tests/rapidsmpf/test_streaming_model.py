"""Random networks of actors in C++ and Python do what their model says; more of them: ``make test-long``."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from rapidsmpf.config import Options
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.message import Message
from streaming_model.networks import run_network


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_networks(first):
    ends = {run_network(seed).ended_by for seed in range(first, first + 20)}
    assert "itself" in ends


class OddError(Exception):
    """Cannot be copied: what it is made of is not its arguments."""

    def __init__(self, number, text):
        super().__init__(text)
        self.number = number


class Payload:
    """Something that can be referred to weakly."""


def test_an_error_does_not_keep_what_its_actor_had():
    @define_actor()
    async def fail(ctx, channel):
        payload = Payload()
        watched.append(weakref.ref(payload))
        await channel.send(ctx, Message(0, ArbitraryChunk(1)))
        raise OddError(7, "injected")

    @define_actor()
    async def drop(ctx, channel):
        async for _ in channel:
            pass

    watched = []
    with Context.from_options(None, Options({})) as ctx:
        channel = ctx.create_channel()
        with pytest.raises(OddError) as caught:
            run_actor_network(ctx, actors=[fail(ctx, channel), drop(ctx, channel)])
        assert any("fail" in str(entry.name) for entry in caught.traceback)
        del caught
        gc.collect()
        assert watched[0]() is None
        # The channel knows what happened all the same.
        with pytest.raises(OddError, match="injected") as later:
            channel.recv_blocking()
        assert later.value.number == 7


def test_tasks_that_an_actor_forgets_end_with_the_network():
    @define_actor()
    async def forget(ctx, channel):
        tasks.append(asyncio.create_task(wait(ctx)))
        await asyncio.sleep(0)
        await channel.send(ctx, Message(0, ArbitraryChunk(1)))

    async def wait(ctx):
        payload = Payload()
        watched.append(weakref.ref(payload))
        await other.recv(ctx)

    @define_actor()
    async def drop(ctx, channel):
        async for _ in channel:
            pass

    tasks, watched = [], []
    with Context.from_options(None, Options({})) as ctx:
        channel, other = ctx.create_channel(), ctx.create_channel()
        run_actor_network(ctx, actors=[forget(ctx, channel), drop(ctx, channel)])
        assert tasks.pop().done()
        gc.collect()
        assert watched[0]() is None

"""Networks whose actors all wait for each other fail and say so, whatever they are; those that only look so do not."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from rapidsmpf.config import Options
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.fanout import FanoutPolicy, fanout
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.memory_reserve_or_wait import reserve_memory
from rapidsmpf.streaming.core.message import Message

PAUSE = 0.7
"""Seconds, longer than it takes to find a standstill."""


@pytest.fixture(params=[1, 2])
def ctx(request):
    options = Options({"num_streaming_threads": str(request.param), "num_py_executors": str(request.param)})
    with Context.from_options(None, options) as context:
        yield context


def number(i):
    return Message(i, ArbitraryChunk(i))


@define_actor()
async def echo(ctx, ch_in, ch_out):
    async for message in ch_in:
        await ch_out.send(ctx, message)


@define_actor()
def echo_in_thread(ctx, ch_in, ch_out):
    for message in ch_in:
        ch_out.send_blocking(message)


@define_actor()
async def echo_gathered(ctx, ch_in, ch_out):
    async def receive():
        async for message in ch_in:
            await ch_out.send(ctx, message)

    await asyncio.gather(receive(), receive())


@define_actor()
async def echo_in_group(ctx, ch_in, ch_out):
    async def receive():
        async for message in ch_in:
            await ch_out.send(ctx, message)

    async with asyncio.TaskGroup() as group:
        group.create_task(receive())
        group.create_task(receive())


@define_actor()
async def echo_waited_for(ctx, ch_in, ch_out):
    async def receive():
        async for message in ch_in:
            await ch_out.send(ctx, message)

    await asyncio.wait([asyncio.create_task(receive()), asyncio.create_task(receive())])


KINDS = [echo, echo_in_thread, echo_gathered, echo_in_group, echo_waited_for]


@pytest.mark.parametrize("one", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("other", KINDS[:2], ids=lambda kind: kind.__name__)
def test_two_actors_that_wait_for_each_other(ctx, one, other):
    there, back = ctx.create_channel(), ctx.create_channel()
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="wait for each other") as caught:
        run_actor_network(ctx, actors=[one(ctx, there, back), other(ctx, back, there)])
    assert time.monotonic() - start < 20
    text = str(caught.value)
    assert text.count("waits for input from channel") >= 2, text


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.__name__)
def test_with_an_actor_of_cpp_between(ctx, kind):
    # The fan-out fills one of its outputs, from which nobody receives before the other one has ended.
    given, one, other = ctx.create_channel(), ctx.create_channel(), ctx.create_channel()

    @define_actor()
    async def one_after_the_other(ctx, first, second):
        async for _ in first:
            pass
        async for _ in second:
            pass

    @define_actor()
    def one_after_the_other_in_thread(ctx, first, second):
        for _ in first:
            pass
        for _ in second:
            pass

    consumer = {echo: one_after_the_other, echo_in_thread: one_after_the_other_in_thread}[kind]
    actors = [
        push_to_channel(ctx, given, [number(i) for i in range(100)]),
        fanout(ctx, given, [one, other], FanoutPolicy.BOUNDED),
        consumer(ctx, one, other),
    ]
    with pytest.raises(RuntimeError, match="wait for each other") as caught:
        run_actor_network(ctx, actors=actors)
    text = str(caught.value)
    assert "'push' waits for room in channel" in text or "'push_to_channel' waits for room" in text, text
    assert f"'{consumer.__name__}' waits for input" in text, text


def slow_kinds():
    """Actors that send a number after some time, which nobody but they know of."""

    @define_actor()
    async def sleeps(ctx, ch_in, ch_out):
        await asyncio.sleep(PAUSE)
        await ch_out.send(ctx, number(1))

    @define_actor()
    async def computes_in_thread(ctx, ch_in, ch_out):
        await asyncio.to_thread(time.sleep, PAUSE)
        await ch_out.send(ctx, number(1))

    @define_actor()
    async def is_called_from_a_thread(ctx, ch_in, ch_out):
        queue, loop = asyncio.Queue(), asyncio.get_running_loop()

        def later():
            time.sleep(PAUSE)
            loop.call_soon_threadsafe(queue.put_nowait, 1)

        thread = threading.Thread(target=later)
        thread.start()
        await ch_out.send(ctx, number(await queue.get()))
        thread.join()

    @define_actor()
    async def gives_up_waiting(ctx, ch_in, ch_out):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ch_in.recv(ctx), PAUSE)
        await ch_out.send(ctx, number(1))

    @define_actor()
    async def blocks_in_a_thread_of_its_own(ctx, ch_in, ch_out):
        waiting = asyncio.create_task(asyncio.to_thread(ch_in.recv_blocking))
        await asyncio.sleep(PAUSE)
        await ch_out.send(ctx, number(1))
        await waiting

    @define_actor()
    def computes(ctx, ch_in, ch_out):
        time.sleep(PAUSE)
        ch_out.send_blocking(number(1))

    @define_actor()
    def has_a_loop_of_its_own(ctx, ch_in, ch_out):
        async def both():
            async def later():
                await asyncio.sleep(PAUSE)
                await ch_out.send(ctx, number(1))

            await asyncio.gather(ch_in.recv(ctx), later())

        asyncio.run(both())

    @define_actor()
    async def waits_for_memory(ctx, ch_in, ch_out):
        await asyncio.sleep(PAUSE)
        await reserve_memory(ctx, 1)
        await ch_out.send(ctx, number(1))

    return list(locals().values())


@pytest.mark.parametrize("kind", slow_kinds(), ids=lambda kind: kind.__name__)
def test_who_is_busy_elsewhere_does_not_stand_still(ctx, kind):
    ready, go = ctx.create_channel(), ctx.create_channel()

    @define_actor()
    async def waits(ctx, ch_in, ch_out):
        received.append(ArbitraryChunk.from_message(await ch_in.recv(ctx)).release())
        await ch_out.send(ctx, number(2))

    received = []
    run_actor_network(ctx, actors=[kind(ctx, go, ready), waits(ctx, ready, go)])
    assert received == [1]


def test_what_waits_outside_is_no_standstill(ctx):
    channel, out = ctx.create_channel(), ctx.create_channel()
    sink, received = pull_from_channel(ctx, out)

    def later():
        time.sleep(PAUSE)
        channel.send_blocking(number(7))
        channel.finish()

    thread = threading.Thread(target=later)
    thread.start()
    run_actor_network(ctx, actors=[echo(ctx, channel, out), sink], produced_outside=[channel])
    thread.join()
    assert [ArbitraryChunk.from_message(each).release() for each in received.release()] == [7]

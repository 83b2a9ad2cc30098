"""What awaiting a send or a receive does, and that an event loop hears of what others bring, however soon."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
import weakref

import pytest
from rapidsmpf.config import Options
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.message import Message


@pytest.fixture
def ctx():
    with Context.from_options(None, Options({"num_streaming_threads": "1"})) as context:
        yield context


def number(value):
    return Message(value, ArbitraryChunk(value))


def value(message):
    return ArbitraryChunk.from_message(message).release()


def test_an_operation_is_an_awaitable_like_others(ctx):
    async def main():
        channel = ctx.create_channel()
        receives = [asyncio.ensure_future(channel.recv(ctx)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in receives)
        assert await asyncio.gather(*(channel.send(ctx, number(i)) for i in range(3))) == [True] * 3
        assert [value(each) for each in await asyncio.gather(*receives)] == [0, 1, 2]
        done, pending = await asyncio.wait([asyncio.ensure_future(channel.recv(ctx))], timeout=0.001)
        assert not done
        pending.pop().cancel()
        await channel.send(ctx, number(3))
        assert value(await channel.recv(ctx)) == 3

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_an_operation_is_awaited_once(ctx, waits):
    async def main():
        channel = ctx.create_channel()
        if not waits:
            await channel.send(ctx, number(0))
        operation = channel.recv(ctx)
        first = asyncio.ensure_future(operation)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="awaited twice"):
            await operation
        if waits:
            await channel.send(ctx, number(0))
        assert value(await first) == 0
        with pytest.raises(RuntimeError, match="awaited twice"):
            await operation

    asyncio.run(main())


def test_what_await_runs_goes_on_when_its_future_has_a_result(ctx):
    async def main():
        channel = ctx.create_channel()
        steps = channel.recv(ctx).__await__()
        future = next(steps)
        assert asyncio.isfuture(future)
        with pytest.raises(RuntimeError, match="no result"):
            steps.send(None)
        await channel.send(ctx, number(7))
        await future
        with pytest.raises(StopIteration) as ended:
            steps.send(None)
        assert value(ended.value.value) == 7
        with pytest.raises(RuntimeError, match="to its end"):
            next(steps)

        await channel.send(ctx, number(8))
        steps = channel.recv(ctx).__await__()
        with pytest.raises(StopIteration) as ended:
            next(steps)
        assert value(ended.value.value) == 8
        steps.close()

    asyncio.run(main())


class Unusual(Exception):
    pass


@pytest.mark.parametrize("how", ["throw", "throw_class", "close", "drop", "cycle", "late"])
def test_who_stops_waiting_takes_no_message(ctx, how):
    async def main():
        channel = ctx.create_channel()

        async def receive():
            return await channel.recv(ctx)

        coroutine = receive()
        asyncio.isfuture(coroutine.send(None))
        if how == "late":  # the message was handed to it, and it has not gone on yet
            await channel.send(ctx, number(1))
        if how == "throw_class":
            with pytest.raises(Unusual):
                coroutine.throw(Unusual)
        elif how == "throw":
            with pytest.raises(Unusual, match="why"):
                coroutine.throw(Unusual("why"))
        elif how == "cycle":
            holder = [coroutine]
            holder.append(holder)
            gone = weakref.ref(coroutine)
            del coroutine, holder
            gc.collect()
            assert gone() is None
        elif how == "drop":
            del coroutine
            gc.collect()
        else:
            coroutine.close()
        if how != "late":
            await channel.send(ctx, number(1))
        assert value(await asyncio.wait_for(channel.recv(ctx), 10)) == 1

    asyncio.run(main())


def test_a_value_of_any_kind_is_a_result(ctx):
    async def main():
        channel = ctx.create_channel()
        await channel.drain(ctx)
        assert await channel.recv(ctx) is None
        channel.shut_down()
        with pytest.raises(ValueError, match="empty"):
            await channel.send(ctx, _taken())
        return [await channel.recv(ctx) for _ in range(2)]

    assert asyncio.run(main()) == [None, None]


def _taken():
    message = number(0)
    value(message)
    return message


def test_files_of_others_are_seen_while_tasks_are_busy(ctx):
    """A network's event loop polls files less often than asyncio's; an actor has to hear of its own all the same."""
    heard = []

    @define_actor()
    async def listen(ctx, ch_out):
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            for i in range(20):
                loop.call_later(0.001, there.send, bytes([i]))
                heard.append((await asyncio.wait_for(loop.sock_recv(here, 1), 30))[0])
        await ch_out.send(ctx, number(0))

    @define_actor()
    async def busy(ctx, ch_in, ch_out):
        waiting = asyncio.ensure_future(ch_in.recv(ctx))
        while not waiting.done():
            await asyncio.sleep(0)
        await ch_out.send(ctx, waiting.result())

    told, out = ctx.create_channel(), ctx.create_channel()
    sink, received = pull_from_channel(ctx, out)
    run_actor_network(ctx, actors=[listen(ctx, told), busy(ctx, told, out), sink])
    assert heard == list(range(20))
    assert len(received.release()) == 1


def _pause(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.parametrize("most", [0, 5e-5, 2e-4])
def test_messages_that_come_as_a_loop_falls_asleep_wake_it(ctx, most):
    """Between a thread, a coroutine and actors of C++, with pauses about as long as a loop looks before it sleeps."""
    chance = random.Random(7)

    @define_actor()
    def irregular(ctx, ch_in, ch_out):
        for message in ch_in:
            _pause(most * chance.random())
            ch_out.send_blocking(message)

    @define_actor()
    async def pass_on(ctx, ch_in, ch_out):
        async for message in ch_in:
            await ch_out.send(ctx, message)

    channels = [ctx.create_channel(messages=1) for _ in range(4)]
    produced = [number(i) for i in range(3000)]
    sink, received = pull_from_channel(ctx, channels[3])
    run_actor_network(
        ctx,
        actors=[
            push_to_channel(ctx, channels[0], produced),
            irregular(ctx, channels[0], channels[1]),
            pass_on(ctx, channels[1], channels[2]),
            pass_on(ctx, channels[2], channels[3]),
            sink,
        ],
    )
    assert [value(each) for each in received.release()] == list(range(3000))

"""What a message costs between actors in Python: beside asyncio's own queue, and to C++ and back."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.channel import Channel
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.message import Message

__all__ = ["CASES"]

_ACTORS = 10


@define_actor()
async def _generate(ctx: Context, out: Channel[ArbitraryChunk[int]], count: int) -> None:
    for number in range(count):
        await out.send(ctx, Message(number, ArbitraryChunk(number)))


@define_actor()
async def _pass_on(
    ctx: Context, source: Channel[ArbitraryChunk[int]], out: Channel[ArbitraryChunk[int]]
) -> None:
    while (message := await source.recv(ctx)) is not None:
        await out.send(ctx, message)


@define_actor()
async def _drop(ctx: Context, source: Channel[ArbitraryChunk[int]]) -> None:
    while await source.recv(ctx) is not None:
        pass


def _context(executors: int = 1) -> Context:
    options = Options({"num_streaming_threads": "1", "num_py_executors": str(executors)})
    return Context.from_options(single.new_communicator(options), options)


def coroutine_chain(messages: int) -> float:
    """Send messages through ten coroutines; return the seconds that a message takes from one to the next."""
    ctx = _context()
    channels = [ctx.create_channel() for _ in range(_ACTORS - 1)]
    actors = [_generate(ctx, channels[0], messages), _drop(ctx, channels[-1])]
    actors += [_pass_on(ctx, source, out) for source, out in itertools.pairwise(channels)]
    start = time.perf_counter()
    run_actor_network(ctx, actors=actors)
    return (time.perf_counter() - start) / messages / len(channels)


def asyncio_chain(messages: int) -> float:
    """Do the same by tasks of asyncio and its queues, of as many places."""

    async def generate(out: asyncio.Queue[int | None]) -> None:
        for number in range(messages):
            await out.put(number)
        await out.put(None)

    async def pass_on(source: asyncio.Queue[int | None], out: asyncio.Queue[int | None]) -> None:
        while (number := await source.get()) is not None:
            await out.put(number)
        await out.put(None)

    async def drop(source: asyncio.Queue[int | None]) -> None:
        while await source.get() is not None:
            pass

    async def run() -> float:
        queues: list[asyncio.Queue[int | None]] = [asyncio.Queue(4) for _ in range(_ACTORS - 1)]
        tasks = [generate(queues[0]), drop(queues[-1])]
        tasks += [pass_on(source, out) for source, out in itertools.pairwise(queues)]
        start = time.perf_counter()
        await asyncio.gather(*tasks)
        return (time.perf_counter() - start) / messages / len(queues)

    return asyncio.run(run())


def there_and_back(messages: int) -> float:
    """Send messages of C++ through one coroutine to C++; return the seconds that a message takes, both ways."""
    ctx = _context()
    source, out = ctx.create_channel(), ctx.create_channel()
    produced = [Message(number, ArbitraryChunk(number)) for number in range(messages)]
    push = push_to_channel(ctx, source, produced)
    pull, _ = pull_from_channel(ctx, out)
    start = time.perf_counter()
    run_actor_network(ctx, actors=[push, _pass_on(ctx, source, out), pull])
    return (time.perf_counter() - start) / messages


CASES: dict[str, Callable[[int], float]] = {
    "async def hop": coroutine_chain,
    "asyncio.Queue hop": asyncio_chain,
    "C++ to Python and back": there_and_back,
}
"""By name, what takes a number of messages and returns seconds for each."""

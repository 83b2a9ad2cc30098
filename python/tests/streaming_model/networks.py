"""Random networks out of actors of C++ and of Python, and what has to come out of them.

A network is drawn from a seed: sources, stages and sinks, each in one of the forms that an actor can have, joined by
channels of few places; payloads that stay where they are and others that are spilled under a budget much smaller than
what waits. Into some an error is injected, some are cancelled from outside, some sinks have enough early.

:func:`run_network` raises AssertionError when a message is lost, doubled or out of the promised order, when another
error than the injected one comes out, or when messages or memory are left.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
from rapidsmpf.config import Options
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.chunks.packed_data import PackedDataChunk
from rapidsmpf.streaming.chunks.table import TableChunk
from rapidsmpf.streaming.core.actor import CppActor, PyActor, define_actor, run_actor_network
from rapidsmpf.streaming.core.cancellation import CancellationSource
from rapidsmpf.streaming.core.channel import Channel
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.fanout import FanoutPolicy, fanout
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.lineariser import Lineariser
from rapidsmpf.streaming.core.memory_reserve_or_wait import reserve_memory
from rapidsmpf.streaming.core.message import Message
from rapidsmpf.streaming.core.spillable_messages import SpillableMessages

BUDGET = 64 << 10
"""Bytes of memory that a network has; what waits in it may be many times as much."""


class InjectedError(Exception):
    """What an actor raises on purpose; its argument names the network."""


class Token:
    """A payload that counts how many of its kind are alive."""

    alive: ClassVar[weakref.WeakSet[Token]] = weakref.WeakSet()

    def __init__(self, value: int) -> None:
        self.value = value
        Token.alive.add(self)


@dataclass
class Outcome:
    """What a network was, and how it ended; for statistics of the tests."""

    actors: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    spilled: int = 0
    ended_by: str = "itself"


@dataclass
class Stream:
    """A channel, and what is expected of it: the numbers of its messages, in their order or in any."""

    channel: Channel[Any]
    numbers: list[int]
    ordered: bool
    kind: str


class Network:
    """A random network under construction.

    Parameters
    ----------
    seed
        Decides everything but the order in which threads run.
    ctx
        The context.
    """

    def __init__(self, seed: int, ctx: Context) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.ctx = ctx
        self.actors: list[CppActor | PyActor] = []
        self.checks: list[Callable[[], None]] = []
        self.outcome = Outcome()
        self.is_cut_short = False
        """Some sink takes less than comes."""
        self._injection = self.random.choice([None, None, self.random.randrange(1, 150)])
        self._steps = 0
        self._lock = threading.Lock()
        self.has_failed = False

    # What actors do with messages.

    def make(self, number: int, kind: str) -> Message[Any]:
        """Return the message of a number."""
        rows = 200 + number % 7 * 100
        if kind == "object":
            return Message(number, ArbitraryChunk(Token(number)))
        if kind == "packed":
            content = number.to_bytes(8, "little") * rows
            return Message(
                number, PackedDataChunk.from_packed_data(PackedData.from_host_bytes(content, self.ctx.br()))
            )
        return Message(number, TableChunk(pl.DataFrame({"x": [number] * rows}), self.ctx.br()))

    def check(self, message: Message[Any], kind: str) -> int:
        """Return the number of a message, whose payload must be its own."""
        number = message.sequence_number
        rows = 200 + number % 7 * 100
        if kind == "object":
            assert ArbitraryChunk.from_message(message).release().value == number
        elif kind == "packed":
            content = PackedDataChunk.from_message(message).to_packed_data().to_host_bytes()
            assert bytes(content) == number.to_bytes(8, "little") * rows
        else:
            chunk = TableChunk.from_message(message, self.ctx.br()).make_available(self.ctx.br())
            assert pl.DataFrame(chunk.table_view())["x"].to_list() == [number] * rows
        return number

    def step(self) -> None:
        """An actor of Python works on a message: it may be the one that fails."""
        with self._lock:
            self._steps += 1
            fails = self._steps == self._injection
            self.has_failed = self.has_failed or fails
        if fails:
            raise InjectedError(self.seed)

    def channel(self) -> Channel[Any]:
        """Return a channel of some places."""
        places = self.random.choice([1, 2, 4, 50])
        limit = self.random.choice([None, None, 5000])
        return self.ctx.create_channel(messages=places, max_bytes=limit)

    def add(self, name: str, actor: CppActor | PyActor) -> None:
        """Take an actor."""
        self.outcome.actors[name] += 1
        self.actors.append(actor)

    # Sources.

    def source(self) -> Stream:
        """Add producers of some numbers."""
        count = self.random.choice([0, 1, 5, 40, 120])
        kind = self.random.choice(["object", "packed", "table"])
        out = self.channel()
        numbers = list(range(count))
        self.outcome.messages += count
        form = self.random.choice(["cpp", "coroutine", "function", "throttled"])
        net = self

        @define_actor()
        async def coroutine(ctx, ch_out, mine):
            for number in mine:
                net.step()
                if not await ch_out.send(ctx, net.make(number, kind)):
                    return

        @define_actor()
        def function(ctx, ch_out, mine):
            for number in mine:
                net.step()
                if not ch_out.send_blocking(net.make(number, kind)):
                    return

        @define_actor()
        async def throttled(ctx, ch_out, mine):
            # Producers within one actor, of which two may have a payload at a time.
            tickets = asyncio.Semaphore(2)

            async def produce(number):
                async with tickets:
                    net.step()
                    await ch_out.send(ctx, net.make(number, kind))

            await asyncio.gather(*(produce(number) for number in mine))

        if form == "cpp":
            messages = [self.make(number, kind) for number in numbers]
            self.add("push", push_to_channel(self.ctx, out, messages))
            return Stream(out, numbers, True, kind)
        if form == "throttled":
            self.add(form, throttled(self.ctx, out, numbers))
            return Stream(out, numbers, False, kind)
        parts = self.random.choice([1, 1, 3])
        for part in range(parts):
            make = self.random.choice([coroutine, function])
            self.add(make.__name__ + " source", make(self.ctx, out, numbers[part::parts]))
        return Stream(out, numbers, parts == 1, kind)

    # Stages.

    def stage(self, stream: Stream) -> list[Stream]:
        """Add actors that work on a stream; return what comes out of them."""
        forms = ["coroutine", "function", "parts", "fanout", "memory", "kept"]
        if stream.ordered:
            forms.append("lineariser")
        form = self.random.choice(forms)
        if form == "fanout":
            outs = [self.channel() for _ in range(self.random.choice([1, 2, 3]))]
            policy = self.random.choice(list(FanoutPolicy))
            self.add("fanout", fanout(self.ctx, stream.channel, outs, policy))
            return [Stream(out, stream.numbers, stream.ordered, stream.kind) for out in outs]
        out = self.channel()
        if form == "lineariser":
            line = Lineariser(self.ctx, out, self.random.choice([1, 2, 3]))
            for channel in line.producers:
                self.add("line", self.passing(self.random.choice(["coroutine", "function"]), stream, channel))
            self.add("lineariser", line.actor())
            return [Stream(out, stream.numbers, True, stream.kind)]
        self.add(form, self.passing(form, stream, out))
        return [Stream(out, stream.numbers, stream.ordered and form != "parts", stream.kind)]

    def passing(self, form: str, stream: Stream, out: Channel[Any]) -> PyActor:
        """Return an actor that sends on what comes."""
        net = self
        pauses = self.random.random() < 0.3
        size = self.random.choice([100, 5000, 2 * BUDGET])

        async def pass_on(ctx, ch_in, ch_out):
            async for message in ch_in:
                net.step()
                if pauses:
                    await asyncio.sleep(0)
                if not await ch_out.send(ctx, message):
                    return

        @define_actor()
        async def coroutine(ctx, ch_in, ch_out):
            await pass_on(ctx, ch_in, ch_out)

        @define_actor()
        def function(ctx, ch_in, ch_out):
            for message in ch_in:
                net.step()
                if not ch_out.send_blocking(message):
                    return

        @define_actor()
        async def parts(ctx, ch_in, ch_out):
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(pass_on(ctx, ch_in, ch_out))

        @define_actor()
        async def gathered(ctx, ch_in, ch_out):
            await asyncio.gather(*(pass_on(ctx, ch_in, ch_out) for _ in range(3)))

        @define_actor()
        async def memory(ctx, ch_in, ch_out):
            async for message in ch_in:
                net.step()
                reservation = await reserve_memory(ctx, size)
                reservation.clear()
                if not await ch_out.send(ctx, message):
                    return

        @define_actor()
        async def kept(ctx, ch_in, ch_out):
            messages = SpillableMessages(ctx)
            ids: list[int] = []
            async for message in ch_in:
                net.step()
                ids.append(messages.insert(message))
            for each in ids:
                if not await ch_out.send(ctx, await messages.extract(each)):
                    return

        made = {"function": function, "memory": memory, "kept": kept, "coroutine": coroutine}
        # A group wraps what its tasks raise, which is the actor's own doing.
        made["parts"] = parts if self._injection is None else gathered
        return made[form](self.ctx, stream.channel, out)

    # Sinks.

    def sink(self, stream: Stream) -> None:
        """Add what takes a stream, and the check of what it took."""
        taken: list[int] = []
        net = self
        enough = self.random.choice([None, None, None, 3, 30])
        form = self.random.choice(["cpp", "coroutine", "function"])

        @define_actor()
        async def coroutine(ctx, ch_in):
            async for message in ch_in:
                taken.append(net.check(message, stream.kind))
                net.step()
                if len(taken) == enough:
                    return

        @define_actor()
        def function(ctx, ch_in):
            for message in ch_in:
                taken.append(net.check(message, stream.kind))
                net.step()
                if len(taken) == enough:
                    return

        def check() -> None:
            wanted = stream.numbers if enough is None else stream.numbers[:enough]
            if stream.ordered:
                assert taken == wanted, (taken, wanted)
            else:
                assert len(taken) == len(wanted) == len(set(taken)), taken
                assert set(taken) <= set(stream.numbers), taken

        if form == "cpp":
            enough = None
            actor, received = pull_from_channel(self.ctx, stream.channel)
            self.add("pull", actor)

            def check_pulled() -> None:
                taken.extend(net.check(message, stream.kind) for message in received.release())
                check()

            self.checks.append(check_pulled)
            return
        self.is_cut_short = self.is_cut_short or enough is not None
        self.add(
            form + " sink", {"coroutine": coroutine, "function": function}[form](self.ctx, stream.channel)
        )
        self.checks.append(check)

    def draw(self) -> None:
        """Draw the network."""
        for _ in range(self.random.choice([1, 1, 2])):
            open_streams = [self.source()]
            while open_streams:
                stream = open_streams.pop()
                if len(self.actors) < 12 and self.random.random() < 0.65:
                    open_streams += self.stage(stream)
                else:
                    self.sink(stream)


def run_network(seed: int) -> Outcome:
    """Run the network of a seed; AssertionError if it does not do what it should.

    Parameters
    ----------
    seed
        The seed.
    """
    draw = random.Random(~seed)
    options = Options(
        {
            "num_streaming_threads": str(draw.choice([1, 2, 4])),
            "num_py_executors": str(draw.choice([1, 1, 2])),
            "spill_device_limit": str(BUDGET),
            "memory_limit": str(2 * BUDGET),
            "memory_reserve_timeout": "20 ms",
        }
    )
    with Context.from_options(None, options) as ctx:
        outcome = _run(seed, ctx, draw)
        outcome.spilled = ctx.br().bytes_spilled
        _check_leaks(ctx)
    return outcome


def _run(seed: int, ctx: Context, draw: random.Random) -> Outcome:
    """Run the network of a seed and check what has come out. Nothing of it is left but cycles.

    Parameters
    ----------
    seed, ctx, draw
        What it is, where it runs, and who decides whether it is cancelled.
    """
    network = Network(seed, ctx)
    network.draw()
    source, canceller = CancellationSource(), None
    if draw.random() < 0.2:
        canceller = threading.Timer(draw.random() * 0.02, source.cancel)
        canceller.start()
    try:
        run_actor_network(ctx, network.actors, cancellation=source)
    except InjectedError as error:
        if error.args != (seed,) or not network.has_failed:
            raise
        network.outcome.ended_by = "error"
    except RuntimeError as error:
        if canceller is None or "wait for each other" in str(error):
            raise
        network.outcome.ended_by = "cancellation"
    else:
        assert not network.has_failed
        for check in network.checks:
            check()
    finally:
        if canceller is not None:
            canceller.cancel()
            canceller.join()
    return network.outcome


def _check_leaks(ctx: Context) -> None:
    """Everything that a network had is gone; what spills in the background may take a moment.

    Parameters
    ----------
    ctx
        Its context.
    """
    end = time.monotonic() + 20
    while True:
        gc.collect()
        reserved = {kind: ctx.br().memory_reserved(kind) for kind in _kinds()}
        if not len(Token.alive) and not any(reserved.values()) and ctx.describe() == "":
            return
        assert time.monotonic() < end, (len(Token.alive), reserved, ctx.describe())


def _kinds() -> list[Any]:
    from rapidsmpf.memory.buffer import MemoryType

    return list(MemoryType)

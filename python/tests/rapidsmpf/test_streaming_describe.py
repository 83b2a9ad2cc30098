"""Networks that are looked at: descriptions while they run, and traces of what they did."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time

import polars as pl
import pytest
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.chunks.table import TableChunk
from rapidsmpf.streaming.core import describe as describe_module
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.describe import NetworkTrace, describe, describe_on_signal
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.memory_reserve_or_wait import reserve_memory
from rapidsmpf.streaming.core.message import Message

FRAME = pl.DataFrame({"x": [1, 2, 3, 4]})


@pytest.fixture
def ctx():
    with Context.from_options(None, Options({"num_streaming_threads": "2"})) as context:
        yield context


@pytest.fixture
def run():
    """Run networks in threads; they have ended when the test has."""
    threads = []

    def start(ctx, actors):
        threads.append(threading.Thread(target=run_actor_network, args=(ctx, actors)))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def described(ctx, *what, **options):
    """Return a description once it has all of `what` (regular expressions)."""
    end = time.monotonic() + 30
    while True:
        text = ctx.describe(**options)
        missing = [each for each in what if re.search(each, text) is None]
        if not missing:
            return text
        assert time.monotonic() < end, f"{missing} not in {text}"


@define_actor()
async def keep_until(ctx, ch_in, ch_out, enough):
    """Send on what comes, until a thread says that it is enough."""
    async for message in ch_in:
        await ch_out.send(ctx, message)
    await asyncio.to_thread(enough.wait, 30)


def tables(ctx, count):
    return [Message(i, TableChunk(FRAME, ctx.br())) for i in range(count)]


def test_actors_and_channels_are_described_while_they_run(ctx, run):
    given, taken, enough = ctx.create_channel(), ctx.create_channel(), threading.Event()
    sink, received = pull_from_channel(ctx, taken)
    assert ctx.describe() == ""
    run(ctx, [push_to_channel(ctx, given, tables(ctx, 5)), keep_until(ctx, given, taken, enough), sink])
    try:
        text = described(
            ctx,
            r"'push' has ended: took 0 messages of 0 rows and 0 bytes, gave 5 messages of 20 rows and 160 bytes",
            r"'keep_until' runs: took 5 messages of 20 rows and 160 bytes, gave 5 messages of 20 rows",
            r"'pull' waits for input from channel \d: took 5 messages of 20 rows",
            r"from 'push' to 'keep_until': 0 messages of 0 bytes wait, 5 of 20 rows and 160 bytes were sent",
            r"from 'keep_until' to 'pull': ",
            # It goes on waiting.
            r"'pull' .*waited 0\.[0-9]*[1-9][0-9]* s for input",
        )
        assert text.startswith("network of 3 actors\n")
        assert len(re.findall(r"(?m)^  actor", text)) == 3
        assert "network of 3 actors" in describe()
        assert "network of 3 actors" in describe(ctx)
        dot = ctx.describe("dot")
        assert dot.startswith("digraph network_0 {")
        arrows = set(re.findall(r"n0_(\w+) -> n0_(\w+)", dot))
        assert len(arrows) == 4
    finally:
        enough.set()
    assert len(received.release()) in (0, 5)


def test_waits_for_room_and_memory_are_told_apart(run):
    br = BufferResource(None, memory_available={MemoryType.HOST: lambda: 1000})
    with Context(None, br, Options({"memory_reserve_timeout": "30 s"})) as ctx:
        all_of_it, _ = br.reserve(MemoryType.HOST, 1000, allow_overbooking=False)
        numbers = ctx.create_channel(messages=1)

        @define_actor()
        async def count(ctx, ch_out):
            for i in range(9):
                if not await ch_out.send(ctx, Message(i, ArbitraryChunk(i))):
                    return

        @define_actor()
        async def hungry(ctx, ch_in):
            await ch_in.recv(ctx)
            (await reserve_memory(ctx, 500, mem_type=MemoryType.HOST)).clear()

        run(ctx, [count(ctx, numbers), hungry(ctx, numbers)])
        described(
            ctx,
            r"'count' waits for room in channel 0: .*waited 0.000 s for input, 0\.\d*[1-9]\d* s for room",
            r"'hungry' waits for memory: .* for room, 0\.\d*[1-9]\d* s for memory, 0.000 s for other ranks",
        )
        all_of_it.clear()


def test_other_formats_are_refused(ctx):
    with pytest.raises(ValueError, match="'svg'"):
        ctx.describe("svg")


def test_a_signal_describes_what_runs(ctx, monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr(describe_module, "_STANDARD_ERROR", writing)
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    found = []

    @define_actor()
    def ask(ctx, ch):
        described(ctx, "'ask' runs")
        os.kill(os.getpid(), signal.SIGUSR1)
        found.append(os.read(reading, 1 << 16).decode())

    @define_actor()
    async def wait(ctx, ch):
        await ch.recv(ctx)

    try:
        channel = ctx.create_channel()
        run_actor_network(ctx, actors=[ask(ctx, channel), wait(ctx, channel)])
        assert "actor 0 'ask' runs" in found[0]
        # It stays, and says so when there is nothing.
        signal.raise_signal(signal.SIGUSR1)
        assert os.read(reading, 1 << 16) == b"no network of actors runs\n"
        describe_on_signal()
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(reading)
        os.close(writing)


def test_a_handler_of_ones_own_stays(ctx):
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    try:
        run_actor_network(ctx, actors=[])
        signal.raise_signal(signal.SIGUSR1)
        assert calls == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- traces ---------------------------------------------------------------------------------------------------------


@define_actor()
async def double(ctx, ch_in, ch_out):
    async for message in ch_in:
        value = ArbitraryChunk.from_message(message).release()
        await ch_out.send(ctx, Message(message.sequence_number, ArbitraryChunk(2 * value)))


def tracks(text):
    """Return the slices of each track by its name, sorted by time."""
    events = json.loads(text)["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    found = {name: [] for name in names.values()}
    for each in events:
        if each["ph"] == "X":
            assert each["dur"] >= 0
            assert each["ts"] >= 0
            begin, nanoseconds = (round(1000 * each[key]) for key in ("ts", "dur"))
            found[names[each["tid"]]].append((begin, begin + nanoseconds, each["name"], each["args"]))
    return {name: sorted(each, key=lambda slice_: (slice_[0], -slice_[1])) for name, each in found.items()}


def assert_nested(slices):
    open_ = []
    for begin, end, *_ in slices:
        while open_ and open_[-1] <= begin:
            open_.pop()
        assert not open_ or end <= open_[-1]
        open_.append(end)


def test_a_trace_has_a_track_for_each_actor_and_a_slice_for_each_message(ctx, tmp_path):
    numbers, doubled = ctx.create_channel(messages=1), ctx.create_channel(messages=1)
    source = push_to_channel(ctx, numbers, [Message(i, ArbitraryChunk(i)) for i in range(20)])
    sink, _ = pull_from_channel(ctx, doubled)
    path = tmp_path / "network.json"
    run_actor_network(ctx, actors=[source, double(ctx, numbers, doubled), sink], trace=path)
    found = tracks(path.read_text())
    assert set(found) == {"push", "double", "pull"}
    for name, slices in found.items():
        assert_nested(slices)
        assert slices[0][2] == name
    for name in ("double", "pull"):
        worked_on = [
            (what, args["sequence"]) for _, _, what, args in found[name] if what.startswith("message")
        ]
        assert worked_on == [(f"message {i}", i) for i in range(20)]
    assert {what for _, _, what, _ in found["push"]} <= {
        "push",
        "waits for room",
        *(f"message {i}" for i in range(20)),
    }


def test_traces_have_rows_and_bytes_and_several_networks(ctx):
    trace = NetworkTrace()
    for _ in range(2):
        channel = ctx.create_channel()
        sink, _ = pull_from_channel(ctx, channel)
        run_actor_network(ctx, actors=[push_to_channel(ctx, channel, tables(ctx, 3)), sink], trace=trace)
    found = json.loads(trace.json())
    messages = [each["args"] for each in found["traceEvents"] if each["name"].startswith("message")]
    assert {(each["rows"], each["bytes"]) for each in messages} == {(4, 32)}
    assert found["otherData"]["dropped_events"] == trace.num_dropped == 0


def test_what_there_is_no_room_for_is_counted(ctx):
    trace = NetworkTrace(most_events=3)
    channel = ctx.create_channel()
    sink, _ = pull_from_channel(ctx, channel)
    run_actor_network(ctx, actors=[push_to_channel(ctx, channel, tables(ctx, 9)), sink], trace=trace)
    assert len(trace) == 3
    assert trace.num_dropped > 0
    json.loads(trace.json())


@define_actor()
async def fail(ctx, ch):
    raise KeyError("no rows")


def test_the_trace_of_a_network_that_fails_is_written(ctx, tmp_path):
    channel = ctx.create_channel()
    source = push_to_channel(ctx, channel, tables(ctx, 1))
    with pytest.raises(KeyError):
        run_actor_network(ctx, actors=[source, fail(ctx, channel)], trace=str(tmp_path / "t.json"))
    assert "fail" in tracks((tmp_path / "t.json").read_text())


def test_a_trace_that_cannot_be_written_hides_no_error(ctx, tmp_path):
    def run(consumer):
        channel = ctx.create_channel()
        actors = [push_to_channel(ctx, channel, tables(ctx, 1)), consumer(ctx, channel)]
        run_actor_network(ctx, actors=actors, trace=tmp_path / "none" / "t.json")

    with pytest.raises(KeyError, match="no rows") as caught:
        run(fail)
    assert "trace of the network was not written" in caught.value.__notes__[0]
    with pytest.raises(FileNotFoundError):
        run(lambda ctx, channel: pull_from_channel(ctx, channel)[0])

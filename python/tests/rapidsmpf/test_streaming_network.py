"""Networks of actors: coroutines, plain functions and actors of C++, mixed."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
import weakref

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.streaming.chunks.arbitrary import ArbitraryChunk
from rapidsmpf.streaming.chunks.packed_data import PackedDataChunk
from rapidsmpf.streaming.chunks.table import TableChunk
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.cancellation import CancellationSource, shutdown_channels
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.fanout import FanoutPolicy, fanout
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.lineariser import Lineariser
from rapidsmpf.streaming.core.message import Message, Payload
from rapidsmpf.streaming.core.node import define_py_node
from rapidsmpf.table import pack


@pytest.fixture(params=["1", "3"])
def ctx(request):
    options = Options({"num_streaming_threads": request.param, "num_py_executors": request.param})
    with Context.from_options(None, options) as context:
        yield context


def numbers(count):
    return [Message(i, ArbitraryChunk(i)) for i in range(count)]


def values(messages):
    return [ArbitraryChunk.from_message(message).release() for message in messages]


@define_actor()
async def double(ctx, ch_in, ch_out):
    async for message in ch_in:
        value = ArbitraryChunk.from_message(message).release()
        if not await ch_out.send(ctx, Message(message.sequence_number, ArbitraryChunk(2 * value))):
            return
    await ch_out.drain(ctx)


@define_actor()
def increment(ctx, ch_in, ch_out):
    for message in ch_in:
        value = ArbitraryChunk.from_message(message).release()
        if not ch_out.send_blocking(Message(message.sequence_number, ArbitraryChunk(value + 1))):
            return


@define_actor
async def count_to(ctx, ch_out, count):
    for i in range(count):
        if not await ch_out.send(ctx, Message(i, ArbitraryChunk(i))):
            return i
    return count


def test_actors_of_three_kinds_in_a_chain(ctx):
    channels = [ctx.create_channel() for _ in range(4)]
    sink, received = pull_from_channel(ctx, channels[3])
    run_actor_network(
        ctx,
        actors=[
            push_to_channel(ctx, channels[0], numbers(500)),
            double(ctx, channels[0], channels[1]),
            increment(ctx, channels[1], channels[2]),
            double(ctx, channels[2], channels[3]),
            sink,
        ],
    )
    assert values(received.release()) == [2 * (2 * i + 1) for i in range(500)]
    assert received.release() == []


def test_the_last_of_several_producers_ends_a_channel(ctx):
    together = ctx.create_channel(messages=1)
    sink, received = pull_from_channel(ctx, together)
    run_actor_network(actors=[*(count_to(ctx, together, n) for n in (0, 7, 300)), sink], ctx=ctx)
    assert sorted(values(received.release())) == sorted([*range(7), *range(300)])


def test_a_consumer_that_has_enough_stops_the_producers(ctx):
    made = []

    @define_actor()
    async def generate(ctx, out):
        for i in range(10**9):
            made.append(i)
            if not await out.send(ctx, Message(i, ArbitraryChunk(i))):
                return

    @define_actor()
    def head(ctx, ch_in, found):
        for _ in range(5):
            found.extend(values([ch_in.recv_blocking()]))

    found = []
    rows, doubled = ctx.create_channel(), ctx.create_channel()
    begin = time.perf_counter()
    run_actor_network(
        ctx, actors=[generate(ctx, rows), double(ctx, rows, doubled), head(ctx, doubled, found)]
    )
    assert found == [0, 2, 4, 6, 8]
    assert len(made) < 100
    assert time.perf_counter() - begin < 10


class OwnError(Exception):
    pass


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_an_error_ends_the_network_and_comes_out_as_it_is(ctx, kind):
    error = OwnError("the third message is bad")
    held = []

    @define_actor()
    async def fail_in_coroutine(ctx, ch_in, ch_out):
        for _ in range(3):
            await ch_in.recv(ctx)
        raise error

    @define_actor()
    def fail_in_function(ctx, ch_in, ch_out):
        for _ in range(3):
            ch_in.recv_blocking()
        raise error

    @define_actor()
    async def wait_for_nothing(ctx):
        await asyncio.Event().wait()

    class Held:
        pass

    @define_actor()
    async def generate(ctx, out):
        for i in range(10**9):
            obj = Held()
            held.append(weakref.ref(obj))
            await out.send(ctx, Message(i, ArbitraryChunk(obj)))

    channels = [ctx.create_channel() for _ in range(3)]
    sink, _ = pull_from_channel(ctx, channels[2])
    failing = fail_in_coroutine if kind == "coroutine" else fail_in_function
    with pytest.raises(OwnError) as raised:
        run_actor_network(
            ctx,
            actors=[
                generate(ctx, channels[0]),
                failing(ctx, channels[0], channels[1]),
                double(ctx, channels[1], channels[2]),
                wait_for_nothing(ctx),
                sink,
            ],
        )
    assert raised.value is error
    assert [len(channel) for channel in channels] == [0, 0, 0]
    del raised
    error.__traceback__ = None
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []


def test_an_error_of_an_actor_of_cpp_has_its_type(ctx):
    ordered, out = ctx.create_channel(), ctx.create_channel()
    line = Lineariser(ctx, out, 1)
    sink, _ = pull_from_channel(ctx, out)
    backwards = [Message(i, ArbitraryChunk(i)) for i in (3, 2)]
    with pytest.raises(ValueError, match="2"):
        run_actor_network(
            ctx, actors=[push_to_channel(ctx, line.producers[0], backwards), line.actor(), sink]
        )
    del ordered


def test_a_function_may_run_one_event_loop_after_the_other(ctx):
    waiting = threading.Semaphore(0)

    @define_actor()
    def generate(ctx, out):
        for message in numbers(3):
            assert waiting.acquire(timeout=30)
            out.send_blocking(message)

    @define_actor()
    def receive(ctx, ch_in, found):
        async def message():
            return await ch_in.recv(ctx)

        async def one():
            task = asyncio.ensure_future(message())
            await asyncio.sleep(0)  # it waits now
            waiting.release()
            return await task

        for _ in range(3):
            found.extend(values([asyncio.run(one())]))

    found = []
    channel = ctx.create_channel()
    run_actor_network(ctx, actors=[generate(ctx, channel), receive(ctx, channel, found)])
    assert found == [0, 1, 2]


def test_a_blocked_function_blocks_nobody_else(ctx):
    release = threading.Event()

    @define_actor()
    def block(ctx, ch_in, ch_out):
        message = ch_in.recv_blocking()
        assert release.wait(30)
        ch_out.send_blocking(message)

    @define_actor()
    async def unblock(ctx, ch_in, messages):
        async for message in ch_in:
            messages.append(message)
        release.set()

    a_in, a_out, b, c = (ctx.create_channel() for _ in range(4))
    sink, received = pull_from_channel(ctx, a_out)
    messages = []
    run_actor_network(
        ctx,
        actors=[
            push_to_channel(ctx, a_in, numbers(1)),
            block(ctx, a_in, a_out),
            sink,
            push_to_channel(ctx, b, numbers(100)),
            double(ctx, b, c),
            unblock(ctx, c, messages),
        ],
    )
    assert values(received.release()) == [0]
    assert values(messages) == [2 * i for i in range(100)]


def test_ctrl_c_ends_a_running_network(ctx):
    quiet, used, over = ctx.create_channel(), threading.Event(), threading.Event()

    @define_actor()
    async def wait(ctx, ch):
        used.set()
        await ch.recv(ctx)

    @define_actor()
    def compute(ctx, ch):
        while not over.is_set():
            pass

    def interrupt():
        assert used.wait(30)
        begin.append(time.perf_counter())
        signal.raise_signal(signal.SIGINT)

    begin = []
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_actor_network(ctx, actors=[wait(ctx, quiet), compute(ctx, quiet)])
    assert time.perf_counter() - begin[0] < 5  # a second, and what a busy machine adds
    over.set()
    thread.join()


def test_cancelled_from_outside(ctx):
    source = CancellationSource()
    quiet = ctx.create_channel()

    @define_actor()
    async def wait(ctx, ch):
        source.cancel()
        await ch.recv(ctx)

    @define_actor()
    def wait_too(ctx, ch):
        ch.recv_blocking()

    with pytest.raises(RuntimeError, match="cancel"):
        run_actor_network(ctx, actors=[wait(ctx, quiet), wait_too(ctx, quiet)], cancellation=source)
    assert source.is_cancelled()
    assert source.cancel() is False


def test_a_channel_with_one_end_is_refused(ctx):
    with pytest.raises(ValueError, match="only actor 'count_to'"):
        run_actor_network(ctx, actors=[count_to(ctx, ctx.create_channel(), 1)])
    channel = ctx.create_channel()
    sinks = [pull_from_channel(ctx, channel)[0] for _ in range(2)]
    with pytest.raises(ValueError, match="nobody sends to"):
        run_actor_network(ctx, actors=sinks)


def test_a_channel_may_be_used_from_outside(ctx):
    channel = ctx.create_channel()
    thread = threading.Thread(
        target=run_actor_network,
        args=(ctx, [count_to(ctx, channel, 20)]),
        kwargs={"consumed_outside": [channel]},
    )
    thread.start()
    # The actor sends to it, so nobody else does: it ends with the actor.
    assert values(channel) == list(range(20))
    thread.join()


def test_an_actor_is_run_once(ctx):
    channel = ctx.create_channel()
    source, counting = push_to_channel(ctx, channel, []), count_to(ctx, channel, 3)
    sink, _ = pull_from_channel(ctx, channel)
    run_actor_network(ctx, actors=[source, counting, sink])
    with pytest.raises(ValueError, match="run already"):
        run_actor_network(ctx, actors=[source])
    other = ctx.create_channel()
    with pytest.raises(ValueError, match="run already"):
        run_actor_network(
            ctx, actors=[counting, pull_from_channel(ctx, channel)[0]], consumed_outside=[channel]
        )
    del other


def test_a_cancelled_receive_loses_nothing(ctx):
    received = []

    @define_actor()
    async def impatient(ctx, ch):
        while True:
            try:
                message = await asyncio.wait_for(ch.recv(ctx), 0.0005)
            except TimeoutError:
                continue
            if message is None:
                return
            received.extend(values([message]))

    @define_actor()
    def irregular(ctx, ch):
        for i in range(60):
            time.sleep(0.0005 * (i % 3))
            ch.send_blocking(Message(i, ArbitraryChunk(i)))

    channel = ctx.create_channel()
    run_actor_network(ctx, actors=[irregular(ctx, channel), impatient(ctx, channel)])
    assert received == list(range(60))


def test_coroutines_run_parts_and_are_spread_over_loops(ctx):
    threads = set()

    @define_actor()
    async def part(ctx, ch_out, values):
        threads.add(threading.get_ident())
        for each in values:
            await ch_out.send(ctx, Message(each, ArbitraryChunk(each)))

    @define_actor()
    async def whole(ctx, ch_out, begin):
        await asyncio.gather(part(ctx, ch_out, [begin]), part(ctx, ch_out, [begin + 1]))
        await part(ctx, ch_out, [begin + 2])

    channel = ctx.create_channel()
    sink, received = pull_from_channel(ctx, channel)
    run_actor_network(ctx, actors=[*(whole(ctx, channel, 10 * i) for i in range(6)), sink])
    assert sorted(values(received.release())) == [10 * i + j for i in range(6) for j in range(3)]
    assert len(threads) == int(ctx.options().get_strings()["num_py_executors"])


def test_fanout(ctx):
    for policy in FanoutPolicy:
        source, outs = ctx.create_channel(), [ctx.create_channel() for _ in range(3)]
        sinks = [pull_from_channel(ctx, out) for out in outs]
        run_actor_network(
            ctx,
            actors=[
                push_to_channel(ctx, source, numbers(50)),
                fanout(ctx, source, outs, policy),
                *(actor for actor, _ in sinks),
            ],
        )
        assert [values(received.release()) for _, received in sinks] == [list(range(50))] * 3


def test_lineariser(ctx):
    out = ctx.create_channel()
    line = Lineariser(ctx, out, 3)

    @define_actor()
    async def every_third(ctx, ch_out, first):
        for i in range(first, 300, 3):
            await ch_out.send(ctx, Message(i, ArbitraryChunk(i)))

    sink, received = pull_from_channel(ctx, out)
    actors = [every_third(ctx, channel, i) for i, channel in enumerate(line.producers)]
    run_actor_network(ctx, actors=[*actors, line.actor(), sink])
    assert values(received.release()) == list(range(300))


def test_metadata_beside_the_messages(ctx):
    @define_actor()
    async def describe(ctx, ch):
        await ch.send_metadata(ctx, Message(0, ArbitraryChunk("sorted")))
        await ch.send(ctx, Message(0, ArbitraryChunk(1)))
        await ch.drain_metadata(ctx)
        await ch.drain(ctx)

    @define_actor()
    async def read(ctx, ch, found):
        found.extend(values([await ch.recv(ctx)]))
        found.extend(values([await ch.recv_metadata(ctx)]))
        found.append(await ch.recv_metadata(ctx))
        found.append(await ch.recv(ctx))

    channel, found = ctx.create_channel(), []
    run_actor_network(ctx, actors=[describe(ctx, channel), read(ctx, channel, found)])
    assert found == [1, "sorted", None, None]


def test_shutdown_drops_what_waits(ctx):
    @define_actor()
    async def refuse(ctx, ch, refused):
        await ch.recv(ctx)
        await shutdown_channels(ctx, ch)
        refused.append(await ch.recv(ctx))

    channel, refused = ctx.create_channel(), []
    run_actor_network(ctx, actors=[count_to(ctx, channel, 10**9), refuse(ctx, channel, refused)])
    assert refused == [None]
    assert len(channel) == 0


FRAME = pl.DataFrame({"k": [1, 2, 3], "s": ["a", None, "c"]})


def test_tables_through_a_channel(ctx):
    br = ctx.br()

    @define_actor()
    async def select(ctx, ch_in, ch_out):
        async for message in ch_in:
            chunk = TableChunk.from_message(message, br)
            frame = pl.DataFrame(chunk.make_available(br).table_view())
            await ch_out.send(
                ctx, Message(message.sequence_number, TableChunk(frame.filter(pl.col("k") > 1), br))
            )

    ch_in, ch_out = ctx.create_channel(), ctx.create_channel()
    messages = [Message(0, TableChunk(FRAME, br)), Message(1, TableChunk.from_packed_data(pack(FRAME, br)))]
    assert messages[0].nbytes() > 0
    sink, received = pull_from_channel(ctx, ch_out)
    run_actor_network(ctx, actors=[push_to_channel(ctx, ch_in, messages), select(ctx, ch_in, ch_out), sink])
    chunks = [TableChunk.from_message(message, br) for message in received.release()]
    assert [chunk.shape for chunk in chunks] == [(2, 2), (2, 2)]
    for chunk in chunks:
        assert_frame_equal(pl.DataFrame(chunk.table_view()), FRAME.filter(pl.col("k") > 1))


def test_packed_rows_are_made_available():
    br = BufferResource(None)
    chunk = TableChunk.from_packed_data(pack(FRAME, br))
    assert not chunk.is_available()
    assert chunk.make_available_cost() > 0
    with pytest.raises(ValueError, match="make_available"):
        chunk.table_view()
    assert chunk.make_available(br) is chunk
    assert chunk.make_available_cost() == 0
    assert_frame_equal(pl.DataFrame(chunk.table_view()), FRAME)
    Message(0, chunk)
    with pytest.raises(ValueError, match="taken"):
        chunk.make_available(br)


def test_packed_data_in_messages_and_copies():
    br = BufferResource(None)
    message = Message(7, PackedDataChunk.from_packed_data(PackedData.from_host_bytes(b"payload", br)))
    assert (message.sequence_number, message.nbytes(), message.empty()) == (7, 7, False)
    reservation, _ = br.reserve(MemoryType.HOST, message.copy_cost(), allow_overbooking=True)
    copy = message.copy(reservation)
    assert copy.nbytes(MemoryType.HOST) == 7
    for each in (message, copy):
        assert PackedDataChunk.from_message(each).to_packed_data().to_host_bytes() == b"payload"
        assert each.empty()
        with pytest.raises(ValueError, match="empty"):
            PackedDataChunk.from_message(each)
    with pytest.raises(ValueError, match="taken"):
        message.copy_cost()


def test_payloads_of_ones_own():
    class Text:
        def __init__(self, text):
            self.text = text

        @classmethod
        def from_message(cls, message, br):
            return cls(ArbitraryChunk.from_message(message).release())

        def into_message(self, sequence_number, message):
            ArbitraryChunk(self.text).into_message(sequence_number, message)

    assert isinstance(Text("x"), Payload)
    assert Text.from_message(Message(0, Text("x")), None).text == "x"
    with pytest.raises(TypeError, match="ArbitraryChunk"):
        Message(0, "x")
    with pytest.raises(ValueError, match="not a"):
        PackedDataChunk.from_message(Message(0, ArbitraryChunk(1)))


def test_what_is_wrong_is_said(ctx):
    channel = ctx.create_channel()
    with pytest.raises(ValueError, match="at least one message"):
        ctx.create_channel(messages=0)
    with pytest.raises(TypeError):
        double(ctx)
    with pytest.raises(TypeError, match="an actor must be"):
        run_actor_network(ctx, actors=[3])
    with pytest.raises(ValueError, match="context"):
        run_actor_network(actors=[])
    empty = Message(0, ArbitraryChunk(1))
    values([empty])
    with pytest.raises(ValueError, match="empty"):
        channel.send(ctx, empty)
    with pytest.raises(ValueError, match="empty"):
        push_to_channel(ctx, channel, [empty])

    async def wrong():
        with pytest.raises(RuntimeError, match="await the other"):
            channel.recv_blocking()

    asyncio.run(wrong())
    with Context.from_options(None, Options({"num_py_executors": "0"})) as other:
        source = count_to(other, channel, 1)
        with pytest.raises(ValueError, match="num_py_executors"):
            run_actor_network(actors=[source, pull_from_channel(other, channel)[0]])


def test_channels_in_a_loop_of_ones_own(ctx):
    async def main():
        channel = ctx.create_channel(messages=1)

        async def produce():
            for i in range(50):
                await channel.send(ctx, Message(i, ArbitraryChunk(i)))
            await channel.drain(ctx)

        producer = asyncio.create_task(produce())
        found = [value async for message in channel for value in values([message])]
        await producer
        return found

    assert asyncio.run(main()) == list(range(50))
    assert asyncio.run(main()) == list(range(50))


def test_context_of_older_and_newer_scripts():
    comm = single.new_communicator(Options())
    options = Options({"num_streaming_threads": "2"})
    for arguments in ((comm, options), (comm, None, options)):
        with Context.from_options(*arguments) as context:
            assert context.num_streaming_threads == 2
    with pytest.raises(TypeError, match="options"):
        Context.from_options(comm)
    assert define_py_node is define_actor

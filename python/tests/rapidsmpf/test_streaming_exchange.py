"""Exchanges between fragments: Arrow streams into collectives and out of them."""

from __future__ import annotations

import signal
import threading

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.coll.allgather import AllGather
from rapidsmpf.communicator import loopback, single
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.statistics import Statistics
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.exchange import (
    Drained,
    OutputStream,
    RowRouting,
    RowStore,
    allgather_output_stream,
    drain_into_allgather,
    drain_into_shuffle,
    shuffle_output_stream,
)

from support.cluster import on_ranks

ROWS = 10_000
FRAME = pl.DataFrame(
    {
        "k": [i % 97 for i in range(ROWS)],
        "p": pl.Series([i % 3 for i in range(ROWS)], dtype=pl.UInt32),
        "i": range(ROWS),
        "s": [None if i % 11 == 0 else f"text number {i}" for i in range(ROWS)],
    }
)
OPTIONS = Options({"num_streaming_threads": "2"})


def share(comm):
    size = -(-ROWS // comm.nranks)
    return FRAME[comm.rank * size : (comm.rank + 1) * size]


def shuffled(comm, routing, source, partitions=None, ascending=False):
    with Context.from_options(comm, Options({"num_streaming_threads": "2"})) as context:
        shuffler = Shuffler(comm, 7, partitions or comm.nranks, context.br())
        drained = drain_into_shuffle(source, routing, shuffler, context)
        stream = shuffle_output_stream(shuffler, drained, context, ascending=ascending)
        del shuffler
        return pl.DataFrame(stream)


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_by_hash(nranks):
    parts = on_ranks(nranks, lambda comm: shuffled(comm, RowRouting.by_hash(["k"]), share(comm)))
    assert_frame_equal(pl.concat(parts).sort("i"), FRAME)
    keys = [set(part["k"]) for part in parts]
    assert sum(len(k) for k in keys) == 97


def test_by_column_in_order():
    parts = on_ranks(3, lambda comm: shuffled(comm, RowRouting.by_column("p"), share(comm)))
    for rank, part in enumerate(parts):
        assert_frame_equal(part, FRAME.filter(pl.col("p") == rank))


def test_to_one_partition():
    parts = on_ranks(3, lambda comm: shuffled(comm, RowRouting.to_partition(1), share(comm)))
    assert [part.height for part in parts] == [0, ROWS, 0]
    assert_frame_equal(parts[1], FRAME)
    assert parts[0].schema == FRAME.schema


def test_ascending_partitions():
    part = on_ranks(1, lambda comm: shuffled(comm, RowRouting.by_column("p"), FRAME, 3, ascending=True))[0]
    assert part["p"].is_sorted()


MIXED = FRAME.with_columns(
    large=pl.col("i") * 2**40,
    price=(pl.col("i") - 5000).cast(pl.Decimal(15, 2)),
    huge=pl.col("i").cast(pl.Int128) * 10**25,
    day=pl.date(2026, 1, 1) + pl.duration(days=pl.col("i") % 1000),
    at=pl.datetime(2026, 1, 1, time_zone="UTC") + pl.duration(microseconds=pl.col("i")),
    gaps=pl.when(pl.col("i") % 7 > 2).then(pl.col("i").cast(pl.UInt64)),
    flag=pl.col("k") < 9,
    ratio=pl.col("i") / 7,
    category=pl.col("k").cast(pl.String).cast(pl.Categorical),
    texts=pl.concat_list("s", "s"),
    raw=pl.col("s").cast(pl.Binary),
    short=pl.lit("R"),
)


@pytest.mark.parametrize("nranks", [1, 3])
def test_narrow_rows_come_out_with_their_own_types(nranks):
    def work(comm):
        size = -(-ROWS // comm.nranks)
        source = MIXED[comm.rank * size : (comm.rank + 1) * size]
        return shuffled(comm, RowRouting.by_hash(["k", "price"], narrow=True), source, 2 * comm.nranks)

    parts = on_ranks(nranks, work)
    assert all(part.schema == MIXED.schema for part in parts)
    assert_frame_equal(pl.concat(parts).sort("i"), MIXED)


def test_narrow_rows_wait_in_fewer_bytes():
    comm = single.new_communicator(Options())
    context = Context.from_options(comm, Options())
    waiting, unpacked = {}, {}
    for narrow in (False, True):
        shuffler = Shuffler(comm, int(narrow), 3, context.br())
        routing = RowRouting.by_column("p", narrow=narrow)
        drained = drain_into_shuffle(MIXED.drop("texts", "category"), routing, shuffler, context)
        chunks = [chunk for number in range(3) for chunk in shuffler.extract(number)]
        waiting[narrow] = sum(len(chunk.to_host_bytes()) for chunk in chunks)
        unpacked[narrow] = drained.nbytes
    assert waiting[True] < 0.7 * waiting[False]
    assert unpacked[True] == pytest.approx(unpacked[False], rel=0.1)


def test_a_lazy_source():
    def work(comm):
        batches = share(comm).lazy().filter(pl.col("k") < 50).collect_batches(lazy=True, engine="streaming")
        return shuffled(comm, RowRouting.by_hash(["k"]), batches)

    parts = on_ranks(2, work)
    assert_frame_equal(pl.concat(parts).sort("i"), FRAME.filter(pl.col("k") < 50))


@pytest.mark.parametrize("nranks", [1, 3])
def test_allgather(nranks):
    def work(comm):
        with Context.from_options(comm, Options()) as context:
            gather = AllGather(comm, 2, context.br())
            drained = drain_into_allgather(share(comm), gather, context)
            assert drained.rows == share(comm).height
            return pl.DataFrame(allgather_output_stream(gather, drained, context))

    for everything in on_ranks(nranks, work):
        assert_frame_equal(everything, FRAME)


def test_drained_says_what_it_was():
    comm = single.new_communicator(Options())
    context = Context.from_options(comm, Options())
    shuffler = Shuffler(comm, 0, 1, context.br())
    drained = drain_into_shuffle(FRAME, RowRouting.by_hash(["k"]), shuffler, context)
    assert drained.rows == ROWS
    assert drained.nbytes > ROWS * 20
    assert pl.Schema(drained) == FRAME.schema
    assert pl.Schema(shuffle_output_stream(shuffler, drained, context)) == FRAME.schema


def test_stream_is_read_once():
    comm = single.new_communicator(Options())
    context = Context.from_options(comm, Options())
    shuffler = Shuffler(comm, 0, 1, context.br())
    drained = drain_into_shuffle(FRAME, RowRouting.by_hash(["k"]), shuffler, context)
    stream = shuffle_output_stream(shuffler, drained, context)
    assert pl.DataFrame(stream).height == ROWS
    with pytest.raises(RuntimeError, match="read already"):
        pl.DataFrame(stream)


def test_unread_stream_lets_go():
    comm = single.new_communicator(Options())
    context = Context.from_options(comm, Options())
    for _ in range(2):  # the id is free again
        shuffler = Shuffler(comm, 0, 1, context.br())
        drained = drain_into_shuffle(FRAME, RowRouting.by_hash(["k"]), shuffler, context)
        stream = shuffle_output_stream(shuffler, drained, context)
        del shuffler, stream


def test_pulling_a_stream_lets_other_threads_run():
    """Polars pulls with the GIL held; the other rank's thread needs the GIL to insert what is waited for."""
    comms = loopback.new_cluster(2)
    pulling = threading.Event()
    frames = {}

    def late(comm):
        pulling.wait()
        frames[1] = shuffled(comm, RowRouting.by_hash(["k"]), share(comm))

    other = threading.Thread(target=late, args=(comms[1],))
    other.start()
    with Context.from_options(comms[0], Options()) as context:
        shuffler = Shuffler(comms[0], 7, 2, context.br())
        drained = drain_into_shuffle(share(comms[0]), RowRouting.by_hash(["k"]), shuffler, context)
        stream = shuffle_output_stream(shuffler, drained, context)
        pulling.set()
        frames[0] = pl.scan_arrow_c_stream(stream).collect(engine="streaming")
    other.join()
    assert_frame_equal(pl.concat(frames.values()).sort("i"), FRAME)


@pytest.mark.parametrize(
    ("routing", "error"),
    [
        (RowRouting.by_hash(["zz"]), ValueError),
        (RowRouting.by_column("zz"), ValueError),
        (RowRouting.by_column("k"), ValueError),
        (RowRouting.by_column("p"), IndexError),
        (RowRouting.to_partition(5), IndexError),
    ],
)
def test_bad_routing(routing, error):
    comm = single.new_communicator(Options())
    with pytest.raises(error):
        shuffled(comm, routing, FRAME)


def test_no_keys():
    with pytest.raises(ValueError, match="key"):
        RowRouting.by_hash([])
    with pytest.raises(TypeError, match="list"):
        RowRouting.by_hash("k")


@pytest.mark.parametrize("made_elsewhere", [RowRouting, Drained, OutputStream])
def test_classes_that_are_made_elsewhere(made_elsewhere):
    with pytest.raises(TypeError):
        made_elsewhere()


def test_error_of_the_source_comes_out():
    comm = single.new_communicator(Options())
    bad = FRAME.lazy().select(pl.col("s").cast(pl.Int64)).collect_batches(lazy=True)
    with pytest.raises((RuntimeError, pl.exceptions.InvalidOperationError), match="conversion"):
        shuffled(comm, RowRouting.by_hash(["s"]), bad)


def test_interrupt_ends_a_drain():
    def endless():
        while True:
            yield FRAME.to_arrow().to_batches()[0]

    source = pa.RecordBatchReader.from_batches(FRAME.to_arrow().schema, endless())
    comm = single.new_communicator(Options())

    def interrupted_drain(shuffler, context):
        # The signal comes during the drain, or just before it.
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        drain_into_shuffle(source, RowRouting.to_partition(0), shuffler, context)

    # By a signal of its own, so that a slow machine cannot stop the test run.
    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with Context.from_options(comm, Options()) as context:
            shuffler = Shuffler(comm, 0, 1, context.br())
            with pytest.raises(KeyboardInterrupt):
                interrupted_drain(shuffler, context)
    finally:
        signal.signal(signal.SIGALRM, former)


def test_failure_of_a_rank_ends_the_stream():
    pulling = threading.Event()

    def work(comm):
        with Context.from_options(comm, Options()) as context:
            shuffler = Shuffler(comm, 7, 2, context.br())
            if comm.rank == 1:
                pulling.wait()
                comm.abort("as planned")
                return
            drained = drain_into_shuffle(share(comm), RowRouting.by_hash(["k"]), shuffler, context)
            stream = shuffle_output_stream(shuffler, drained, context)
            pulling.set()
            with pytest.raises(pl.exceptions.ComputeError, match=r"rank 1 .*as planned"):
                pl.scan_arrow_c_stream(stream).collect(engine="streaming")

    on_ranks(2, work)


def test_failure_of_a_rank_ends_a_drain():
    draining = threading.Event()

    def endless(frame):
        while True:
            yield from frame.to_arrow().to_batches()
            draining.set()

    def work(comm):
        with Context.from_options(comm, Options()) as context:
            shuffler = Shuffler(comm, 7, 2, context.br())
            if comm.rank == 1:
                draining.wait()
                comm.abort("as planned")
                return
            source = pa.RecordBatchReader.from_batches(FRAME.to_arrow().schema, endless(share(comm)))
            with pytest.raises(RankFailedError, match="as planned"):
                drain_into_shuffle(source, RowRouting.by_hash(["k"]), shuffler, context)

    on_ranks(2, work)


def test_context_has_what_it_was_made_of():
    comm = single.new_communicator(Options())
    stats = Statistics(True)
    context = Context.from_options(comm, OPTIONS, statistics=stats)
    assert context.comm() is comm
    assert context.options() is OPTIONS
    assert context.statistics() is stats
    assert context.br().statistics is stats
    assert context.num_streaming_threads == 2
    assert context.logger().verbosity_level.name == "WARN"


def test_context_without_ranks():
    context = Context(None, BufferResource())
    assert context.comm() is None
    with pytest.raises(RuntimeError, match="communicator"):
        context.logger()


def test_context_shuts_down_twice():
    with Context(None, BufferResource()) as context:
        context.shutdown()


def test_bad_number_of_threads():
    with pytest.raises(ValueError, match="num_streaming_threads"):
        Context(None, BufferResource(), Options({"num_streaming_threads": "0"}))


@pytest.mark.parametrize("nranks", [1, 2])
def test_a_partition_is_counted_and_read_several_times(nranks):
    def work(comm):
        with Context.from_options(comm, OPTIONS) as context:
            shuffler = Shuffler(comm, 3, comm.nranks, context.br())
            drained = drain_into_shuffle(share(comm), RowRouting.by_hash(["k"]), shuffler, context)
            store = RowStore.of_partition(shuffler, comm.rank, drained, context)
            first, second = store.stream(), store.stream()
            frames = [pl.DataFrame(stream) for stream in (first, second, store.stream(last=True))]
            assert {frame.height for frame in frames} == {store.rows}
            assert frames[0].equals(frames[1])
            assert frames[0].equals(frames[2])
            assert store.nbytes > store.rows * 8
            with pytest.raises(RuntimeError, match="were taken out"):
                store.stream()
            return frames[0]

    parts = on_ranks(nranks, work)
    assert_frame_equal(pl.concat(parts).sort("i"), FRAME)


def test_the_partition_of_another_rank_is_refused():
    def work(comm):
        with Context.from_options(comm, OPTIONS) as context:
            shuffler = Shuffler(comm, 3, comm.nranks, context.br())
            drained = drain_into_shuffle(share(comm), RowRouting.by_hash(["k"]), shuffler, context)
            with pytest.raises(ValueError, match="rank"):
                RowStore.of_partition(shuffler, 1 - comm.rank, drained, context)
            return pl.DataFrame()

    on_ranks(2, work)

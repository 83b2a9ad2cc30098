"""An engine runs one query at a time: inside its own query, after a query that was cancelled, and in a fork."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.error import RankFailedError

from cudf_polars.engine import turns
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.engine.turns import QueryCall, QueryQueue
from support.cluster import on_ranks

QUERY = pl.LazyFrame({"a": [1, 2, 3]}).select(pl.sum("a"))
ANSWER = pl.DataFrame({"a": [6]})
WAIT = 60


class Gate:
    """A function of a query that waits until it is let through; it cannot be serialised, so one rank calls it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, column: pl.Series) -> pl.Series:
        self.reached.set()
        assert self.opened.wait(WAIT)
        return column

    def query(self) -> pl.LazyFrame:
        return pl.LazyFrame({"a": [1, 2, 3]}).select(
            pl.col("a").map_batches(self, return_dtype=pl.Int64).sum()
        )


GATES: dict[int, Gate] = {}


def hold_where_one_is(gate: int, column: pl.Series) -> pl.Series:
    """Wait at a gate, in the rank that has this row. Can be serialised, so that all ranks work."""
    return GATES[gate](column) if 1 in column else column


@pytest.fixture
def engine():
    with SPMDEngine() as engine:
        yield engine


def inner(engine: SPMDEngine) -> pl.LazyFrame:
    def use(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.lazy().select(pl.all() + 1).collect(engine=engine)

    return pl.LazyFrame({"a": [1, 2, 3]}).map_batches(use)


@pytest.mark.parametrize("nranks", [1, 2])
def test_engine_inside_its_own_query(nranks, monkeypatch):
    monkeypatch.setattr(turns, "INNER_WAIT", 0.2)

    def work(comm: Communicator) -> None:
        with SPMDEngine(comm=comm) as engine:
            if comm.rank == 0:  # it alone calls the function
                with pytest.raises(Exception, match="runs one query at a time"):
                    inner(engine).collect(engine=engine)
            else:
                with contextlib.suppress(RankFailedError):
                    inner(engine).collect(engine=engine)
            assert QUERY.collect(engine=engine).rows() == ([(6 * nranks,)] if comm.rank == 0 else [])

    on_ranks(nranks, work)


def take(turns_of_engine: QueryQueue, what: str) -> None:
    with turns_of_engine.take(QueryCall(what)):
        pass


def test_engine_inside_its_own_query_on_the_thread_of_the_query():
    engine = QueryQueue("Engine")
    with engine.take(QueryCall("sink_csv()")), pytest.raises(RuntimeError, match=r"inside sink_csv\(\)"):
        take(engine, "collect()")
    take(engine, "collect()")


def test_a_thread_waits_for_its_turn(engine):
    gate = Gate()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: gate.query().collect(engine=engine))
        assert gate.reached.wait(WAIT)
        second = pool.submit(lambda: QUERY.collect(engine=engine))
        gate.opened.set()
        assert_frame_equal(first.result(WAIT), ANSWER)
        assert_frame_equal(second.result(WAIT), ANSWER)


def test_who_waits_is_told_what_for(engine, monkeypatch):
    monkeypatch.setattr(turns, "FIRST_WARNING", 0.1)
    gate = Gate()
    told: list[str] = []

    def warn(text: str, *_: object, **__: object) -> None:
        if "has waited" in text:  # Polars' own warnings come this way, too
            told.append(text)
            gate.opened.set()

    monkeypatch.setattr(turns.warnings, "warn", warn)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: gate.query().collect(engine=engine))
        assert gate.reached.wait(WAIT)
        assert_frame_equal(QUERY.collect(engine=engine), ANSWER)
        assert_frame_equal(first.result(WAIT), ANSWER)
    assert "collect() has waited" in told[0]
    assert "test_turns.py" in told[0]  # what it waits for is in this file


def test_queries_take_turns_in_the_order_in_which_they_were_asked_for():
    order: list[int] = []
    lines = QueryQueue("Engine")
    calls = [QueryCall(str(i)) for i in range(8)]

    def take(i: int) -> None:
        with lines.take(calls[i]):
            order.append(i)

    with lines.take(QueryCall("first")):
        for call in calls:
            lines.enqueue(call)
        threads = [threading.Thread(target=take, args=(i,)) for i in reversed(range(8))]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert order == list(range(8))


@pytest.mark.parametrize("nranks", [1, 2])
def test_a_query_that_is_cancelled_makes_way_for_the_next(nranks):
    """The function that holds the cancelled query on rank 0 ends only after the next query has."""
    gate = GATES[nranks] = Gate()

    def work(comm: Communicator) -> None:
        frame = pl.LazyFrame({"a": [1, 2, 3] if comm.rank == 0 else [4, 5]})
        hold = functools.partial(hold_where_one_is, nranks)
        held = frame.with_columns(pl.col("a").map_batches(hold, return_dtype=pl.Int64, is_elementwise=True))
        query = held.group_by("a").agg(pl.len())
        following = frame.group_by("a").agg(pl.len())

        async def cancel(engine: SPMDEngine) -> None:
            running = asyncio.ensure_future(query.collect_async(engine=engine))
            await asyncio.to_thread(gate.reached.wait, WAIT)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await asyncio.wait_for(following.collect_async(engine=engine), WAIT)
            gate.opened.set()

        with SPMDEngine(comm=comm, executor_options={"broadcast_limit": 1}) as engine:
            if comm.rank == 0:
                asyncio.run(cancel(engine))
            else:
                with pytest.raises(RankFailedError, match="rank 0 failed: QueryCancelled"):
                    query.collect(engine=engine)
                following.collect(engine=engine)
            rows = following.collect(engine=engine).height
        counted.append(rows)

    counted: list[int] = []
    on_ranks(nranks, work)
    assert sum(counted) == (3 if nranks == 1 else 5)


def test_a_background_query_that_is_cancelled_makes_way(engine):
    gate = Gate()
    query = gate.query().collect(engine=engine, background=True)
    assert gate.reached.wait(WAIT)
    query.cancel()
    assert_frame_equal(QUERY.collect(engine=engine), ANSWER)
    gate.opened.set()
    with pytest.raises(RuntimeError, match="cancelled"):
        query.fetch_blocking()


def test_shutdown_waits_for_a_query_that_was_cancelled():
    gate = Gate()
    engine = SPMDEngine()
    query = gate.query().collect(engine=engine, background=True)
    assert gate.reached.wait(WAIT)
    query.cancel()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(engine.shutdown)
        gate.opened.set()
        end.result(WAIT)
    with pytest.raises(RuntimeError, match="cancelled"):
        query.fetch_blocking()


def test_the_engine_in_a_fork_is_an_error():
    """Where the process is forked, what the fork says comes back through a pipe."""
    engine = SPMDEngine()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            QUERY.collect(engine=engine)
        except RuntimeError as error:
            os.write(write, str(error).encode())
        engine.shutdown()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "is a fork" in said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert_frame_equal(QUERY.collect(engine=engine), ANSWER)
    engine.shutdown()

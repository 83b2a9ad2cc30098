"""The rows of a query batch by batch: all of them or an error, no more than are read, and nothing left running."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY
from execute.local_transport import LocalTransport, RankFailedError, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.fragments import DeviceOfQuery, Reading
from cudf_polars.execute.lazy_batches import LazyBatches
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import open_query, run_query
from cudf_polars.execute.streams import StoppedError

ROWS = 1_000_000
SECONDS = 60
"""Guards against hangs only."""


def batches(
    frame: pl.LazyFrame, *, ordered: bool = True, chunk_size: int | None = None, ahead: int = 0
) -> LazyBatches:
    return LazyBatches(frame, pl.QueryOptFlags(), ordered=ordered, chunk_size=chunk_size, ahead=ahead)


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running() -> int:
    return sum(thread.name == "riverrun-fragment" for thread in threading.enumerate())


@pytest.mark.parametrize("chunk_size", [None, 1000, 3 * ROWS])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("ahead", [0, 1, 100_000, 1 << 40])
def test_all_rows(chunk_size: int | None, ordered: bool, ahead: int) -> None:
    frame = pl.LazyFrame({"a": range(ROWS)}).with_columns(b=pl.col("a") * 2)
    for query in (frame, frame.sort("b", descending=True), frame.filter(pl.col("a") < 0), frame.select("a")):
        expected = query.collect()
        given = list(batches(query, ordered=ordered, chunk_size=chunk_size, ahead=ahead))
        assert_frame_equal(pl.concat([expected.clear(), *given]), expected, check_row_order=ordered)
    wait_for(lambda: not running())


@pytest.mark.parametrize("ahead", [0, 1 << 40])
def test_an_error_comes_behind_the_rows_before_it(ahead: int) -> None:
    texts = [str(n) for n in range(ROWS)] + ["no number"]
    rows = batches(pl.LazyFrame({"a": texts}).select(pl.col("a").cast(pl.Int64)), ahead=ahead)
    seen: list[int] = []
    with pytest.raises(pl.exceptions.InvalidOperationError, match="no number"):
        seen.extend(batch.height for batch in rows)
    assert sum(seen) > 0
    assert next(rows, None) is None


def test_a_query_that_begins_early_pauses_with_its_first_rows() -> None:
    began = threading.Event()
    query = pl.LazyFrame({"a": range(ROWS)}).select(
        pl.col("a").map_batches(lambda a: (began.set(), a)[1], return_dtype=pl.Int64, is_elementwise=True)
    )
    rows = batches(query).begin()
    assert began.wait(SECONDS)
    assert sum(batch.height for batch in rows) == ROWS
    wait_for(lambda: not running())
    assert rows.begin() is rows  # it has ended
    unread = batches(query).begin()
    unread.close()
    wait_for(lambda: not running())


def test_a_query_goes_on_while_its_reader_does_other_things() -> None:
    made = Counted()
    rows = batches(made.query, chunk_size=1000, ahead=1 << 40)
    seen = next(rows).height
    wait_for(lambda: made.rows == ROWS)
    wait_for(lambda: not running())
    assert seen + sum(batch.height for batch in rows) == ROWS
    unread = batches(Counted().query, chunk_size=1000, ahead=10_000)
    next(unread)
    unread.close()
    wait_for(lambda: not running())


def test_the_device_of_a_query_ends_what_nobody_has_read() -> None:
    device = DeviceOfQuery(CpuDevice())
    query = pl.LazyFrame({"a": range(ROWS)})
    paused, unread, read = (
        device.batches(query, pl.QueryOptFlags(), Reading(ordered=True)) for _ in range(3)
    )
    begun = device.batches(query, pl.QueryOptFlags(), Reading(ordered=True, at_once=True))
    next(paused)
    assert sum(batch.height for batch in read) == ROWS
    device.close()
    wait_for(lambda: not running())
    assert [next(rows, None) for rows in (paused, unread, begun, read)] == [None] * 4
    device.close()


class Counted:
    """A query that counts the rows that it has made."""

    def __init__(self) -> None:
        self.rows = 0
        self._lock = threading.Lock()
        self.query = pl.LazyFrame({"a": range(ROWS)}).select(
            pl.col("a").map_batches(self._count, return_dtype=pl.Int64, is_elementwise=True)
        )

    def _count(self, column: pl.Series) -> pl.Series:
        with self._lock:
            self.rows += len(column)
        return column


def test_it_begins_when_asked_and_pauses_until_read() -> None:
    counted = Counted()
    with pl.Config() as config:
        config.set_streaming_chunk_size(1000)
        rows = batches(counted.query)
        assert counted.rows == 0
        next(rows)
        gc.collect()
        time.sleep(0.2)
        assert counted.rows < ROWS / 2
        assert 1000 + sum(batch.height for batch in rows) == ROWS


@pytest.mark.parametrize("close", [True, False], ids=["closed", "dropped"])
def test_it_ends_when_no_more_is_wanted(close: bool) -> None:
    counted = Counted()
    with pl.Config() as config:
        config.set_streaming_chunk_size(1000)
        rows = batches(counted.query)
        next(rows)
        assert running() == 1
        if close:
            rows.close()
            rows.close()
            assert next(rows, None) is None
        del rows
        gc.collect()
        wait_for(lambda: not running())
    assert counted.rows < ROWS / 2


def test_closing_from_outside_is_not_the_end_of_the_rows() -> None:
    gate = threading.Event()

    def wait(column: pl.Series) -> pl.Series:
        gate.wait(SECONDS)
        return column

    rows = batches(pl.LazyFrame({"a": [1]}).select(pl.col("a").map_batches(wait, return_dtype=pl.Int64)))
    raised: list[BaseException] = []

    def read() -> None:
        try:
            list(rows)
        except StoppedError as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_for(lambda: running() == 1)
    rows.close()
    gate.set()
    reader.join(SECONDS)
    assert len(raised) == 1


def run_script(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **variables},
    )


SCRIPT = """
import polars as pl
from cudf_polars.execute.lazy_batches import LazyBatches
"""


CTRL_C = (
    SCRIPT
    + """
import asyncio
import signal
import sys
import time

async def nothing():
    pass

assert pl.Series([1, 2]).sum() == 3
if sys.argv[1:] == ["replaced"]:
    asyncio.run(nothing())

rows = LazyBatches(
    pl.LazyFrame({"a": range(100_000)}).select(pl.col("a") + 1), pl.QueryOptFlags(), ordered=True, chunk_size=1000
)
read = next(rows).height
thread = rows._run.thread
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
)


def test_ctrl_c_ends_what_waits_for_its_reader() -> None:
    """After Ctrl-C Polars runs no query until all running ones end; one that waits for its reader must end, too."""
    done = run_script(
        CTRL_C
        + """
thread.join(30)
print(thread.is_alive(), pl.Series([1, 2]).sum())
try:
    list(rows)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert (done.stdout.split(), done.returncode) == (["interrupted", "False", "3", "interrupted"], 0), (
        done.stderr
    )


def test_ctrl_c_that_polars_does_not_see_ends_no_query() -> None:
    """`asyncio.run` replaces Polars' handler of SIGINT: queries run on, and nothing is kept from running."""
    done = run_script(
        CTRL_C
        + """
time.sleep(0.2)  # several times as long as a waiting query takes to see a Ctrl-C
print(pl.Series([1, 2]).sum(), read + sum(batch.height for batch in rows))
""",
        "replaced",
    )
    assert (done.stdout.split(), done.returncode) == (["interrupted", "3", "100000"], 0), done.stderr


def test_a_panic_is_an_error() -> None:
    done = run_script(
        SCRIPT
        + """
query = pl.LazyFrame({"a": ["1", "x"] * 100_000}).select(pl.col("a").cast(pl.Int64))
try:
    list(LazyBatches(query, pl.QueryOptFlags(), ordered=True))
except pl.exceptions.PanicException:
    print("raised")
""",
        POLARS_PANIC_ON_ERR="1",
    )
    assert done.stdout == "raised\n", done


@pytest.mark.parametrize("ends", ["pass", "raise SystemExit(0)"])
def test_a_process_ends_whose_rows_were_not_all_read(ends: str) -> None:
    done = run_script(
        SCRIPT
        + f"""
query = pl.LazyFrame({{"a": range(1_000_000)}}).select(pl.col("a") + 1)
all_open = [LazyBatches(query, pl.QueryOptFlags(), ordered=True, chunk_size=10) for _ in range(5)]
print(sum(next(rows).height for rows in all_open))
{ends}
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "50\n", "")


def panicking(rank: int) -> pl.LazyFrame:
    """Return a query in which Polars panics on rank 1: a set of lists whose first chunk a filter empties."""
    frame = pl.DataFrame({"k": [0, 1, 2, 3], "l": [[1, 2], [1], [2], [3]], "m": [[2], [3], [4], [5]]})
    if rank == 1:
        frame = pl.concat([frame[:1], frame[1:]], rechunk=False)
    return frame.lazy().filter(pl.col("k") > 0).with_columns(z=pl.col("l").list.set_union("m").list.len())


STEPS: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "groups": lambda lf: lf.group_by("k").agg(pl.col("z").sum()),
    "sort": lambda lf: lf.sort("z", "k"),
    "rows": lambda lf: lf.select("k", "z"),
    "join": lambda lf: lf.join(lf.select("k", w="z"), on="k"),
    "whole": lambda lf: lf.select(pl.col("z").sum()),
}


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("by_batches", [False, True], ids=["whole", "batches"])
def test_a_panic_on_one_rank_fails_the_query(step: str, by_batches: bool, options: ExecutionOptions) -> None:
    try:
        panicking(1).collect()
        pytest.skip("this Polars does not panic here")
    except pl.exceptions.PanicException:
        pass
    seen: list[type[BaseException]] = []

    def work(transport: LocalTransport) -> None:
        query = STEPS[step](panicking(transport.rank))
        try:
            if by_batches:
                opened = open_query(query, transport, options=options)
                list(LazyBatches(opened.rows, pl.QueryOptFlags(), ordered=True))
            else:
                run_query(query, transport, options=options)
        except BaseException as error:
            seen.append(type(error))
            raise

    with pytest.raises(pl.exceptions.PanicException):
        run_ranks(3, work)
    assert set(seen) <= {RankFailedError, pl.exceptions.PanicException}
    assert pl.exceptions.PanicException in seen

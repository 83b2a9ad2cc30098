"""Where memory is exhausted, a query ends with an error that says which step it was and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.compare import PARTITIONED
from execute.local_transport import LocalTransport, run_ranks
from rapidsmpf.error import OutOfMemory

from benchmarks.out_of_core.memory_group import MemoryGroup, NoMemoryGroup
from cudf_polars.execute import memory_watch
from cudf_polars.execute.host_memory import HostMemory
from cudf_polars.execute.memory_watch import MemoryWatch, Turn
from cudf_polars.execute.run import run_query, stream_query

GIB = 1 << 30


class Memory(HostMemory):
    """Has 4 GiB, of which as much is free as ``free_now`` says."""

    def __init__(self, free_now: Callable[[], int], released: int = 0) -> None:
        self.total = 4 * GIB
        self._free_now, self._released = free_now, released
        self.looked = 0

    def free(self) -> int:
        self.looked += 1
        return self._free_now()

    def released(self) -> int:
        return self._released


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(memory_watch, "_SOONEST", 0.0)


def seconds_of(look: Callable[[], None]) -> float:
    """Return how long a call took."""
    start = time.perf_counter()
    look()
    return time.perf_counter() - start


def test_memory_that_is_far_from_full_is_not_looked_at_each_time() -> None:
    memory = Memory(lambda: 3 * GIB)
    watch = MemoryWatch(str, memory)
    reader = Turn()
    for _ in range(1000):
        watch.look(reader)
    assert memory.looked == 1


def test_an_error_says_what_is_free_and_what_runs() -> None:
    watch = MemoryWatch(lambda: "The step: SORT.", Memory(lambda: 5 << 20))
    with pytest.raises(OutOfMemory, match=r"of the 4,096 MiB .* 5 MiB are free. The step: SORT."):
        watch.look(Turn())


def test_a_reader_waits_for_what_others_free() -> None:
    begin = time.monotonic()
    watch = MemoryWatch(str, Memory(lambda: GIB if time.monotonic() > begin + 0.1 else 0))
    assert 0.09 < seconds_of(lambda: watch.look(Turn())) < 5


def test_what_allocators_have_released_counts_as_free() -> None:
    watch = MemoryWatch(str, Memory(lambda: 0, released=GIB))
    watch.look(Turn())


def test_one_reader_goes_on_until_it_is_gone_while_others_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(memory_watch.time, "sleep", pauses.append)
    watch = MemoryWatch(str, Memory(lambda: 200 << 20))
    readers = [Turn(), Turn()]
    for number in range(1, 4):
        watch.look(readers[0])
        assert len(pauses) == number - 1
        watch.look(readers[1])
        assert len(pauses) == number
    assert set(pauses) == {memory_watch._TURN_SECONDS}
    del readers[0]
    watch.look(readers[0])
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("free", "nbytes", "goes_on"),
    [
        (2 * GIB, GIB, True),
        (200 << 20, 10 << 20, True),
        (200 << 20, GIB, False),
        (100 << 20, 0, False),
    ],
)
def test_what_an_answer_needs_beside_what_it_has(free: int, nbytes: int, goes_on: bool) -> None:
    watch = MemoryWatch(str, Memory(lambda: free))
    if goes_on:
        watch.require(nbytes)
    else:
        with pytest.raises(OutOfMemory):
            watch.require(nbytes)


@pytest.mark.parametrize(("left", "goes_on"), [(0, True), (-1, False)])
def test_an_answer_goes_on_while_there_is_more_to_spill(
    table: pl.LazyFrame, monkeypatch: pytest.MonkeyPatch, left: int, goes_on: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(MemoryWatch, "require", lambda _, nbytes: asked.append(nbytes))
    monkeypatch.setattr(LocalTransport, "memory_left", left)
    run_ranks(1, lambda transport: run_query(table.sort("k"), transport, options=PARTITIONED))
    assert bool(asked) != goes_on


# -- in queries ------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> pl.LazyFrame:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"k": [i * 7919 % 10_007 for i in range(10_000)], "t": "a text that is long"}).write_parquet(
        path
    )
    return pl.scan_parquet(path)


def _exhausted(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """Have memory be exhausted after so many looks."""
    counted = iter(range(1 << 30))
    lock = threading.Lock()

    def free() -> int:
        with lock:
            return 4 * GIB if next(counted) < looks else 0

    monkeypatch.setattr(memory_watch, "_LATEST", 0.0)
    monkeypatch.setattr(memory_watch, "HostMemory", lambda: Memory(free))


@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("looks", [0, 3, 8])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_query_that_has_no_memory_names_its_step(
    table: pl.LazyFrame, monkeypatch: pytest.MonkeyPatch, nranks: int, looks: int, streamed: bool
) -> None:
    _exhausted(monkeypatch, looks)
    query = table.sort("k").with_columns(pl.col("k").shift().alias("before"))

    def work(transport: LocalTransport) -> Any:
        if streamed:
            return stream_query(
                query, transport, lambda rows: rows.sink_batches(lambda _: None), options=PARTITIONED
            )
        return run_query(query, transport, options=PARTITIONED)

    with pytest.raises(
        OutOfMemory, match=r"The step that ran.*sink_parquet.*target_partition_size"
    ) as raised:
        run_ranks(nranks, work)
    assert any(note.startswith("In the step: ") for note in raised.value.__notes__)


def test_errors_of_the_library_get_the_name_of_the_step(table: pl.LazyFrame) -> None:
    class Full(LocalTransport):
        def keep(self, source: object) -> Any:
            raise OutOfMemory("no more")

    def work(transport: LocalTransport) -> Any:
        return run_query(table.sort("k"), Full(transport._group, transport._rank), options=PARTITIONED)

    with pytest.raises(OutOfMemory) as raised:
        run_ranks(1, work)
    assert [note for note in raised.value.__notes__ if note.startswith("In the step: ")]


_SCRIPT = """
import sys
import polars as pl
from cudf_polars import SPMDEngine
from rapidsmpf.error import RankFailedError

with SPMDEngine() as engine:
    query = pl.scan_parquet(sys.argv[1]).sort("k")
    try:
        query.collect(engine=engine)
    except MemoryError as error:
        print(error, flush=True)
    except RankFailedError as error:
        assert engine.nranks > 1
        print("of another rank:", error, flush=True)
    assert query.head(3).collect(engine=engine).height == (3 if engine.rank == 0 else 0)
    print("ended well", flush=True)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    rows = pl.DataFrame({"k": range(2_000_000)}).with_columns(
        [pl.col("k").hash(seed).alias(f"v{seed}") for seed in range(11)]
    )
    for part in range(5):
        rows.with_columns(pl.col("k").hash(part + 20).alias("k")).write_parquet(folder / f"{part}.parquet")
    return folder


@pytest.mark.parametrize("nranks", [1, 2])
def test_an_answer_that_does_not_fit_ends_with_an_error_before_the_kernel_ends_the_process(
    large: Path, nranks: int
) -> None:
    try:
        group = MemoryGroup(900 << 20)
    except NoMemoryGroup as error:
        pytest.skip(str(error))
    command = [sys.executable, "-c", _SCRIPT, str(large)]
    if nranks > 1:
        command = [str(Path(sys.executable).with_name("rrun")), "-n", str(nranks), *command]
    with group:
        done = subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True, timeout=120)
        assert not group.was_killed(), done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ended well") == nranks
    assert re.search("^memory is exhausted: .*The step that ran.*: SORT by k", done.stdout, re.MULTILINE)

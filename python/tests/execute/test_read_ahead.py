"""How far Polars reads ahead; what the user has set stays."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from execute.local_transport import run_ranks

from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute import read_ahead, whole_queries
from cudf_polars.execute.read_ahead import VARIABLES, PrefetchBudget, prefetch_within, stores_may_be_read
from cudf_polars.execute.run import run_query
from cudf_polars.plan.read import UnsupportedPolarsError
from support.web_server import web_server

ROW_GROUPS = VARIABLES[0]


@pytest.fixture(autouse=True)
def _not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(read_ahead, "_stores_read", False)  # other tests of this process may have read some


def _in_force() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


def test_what_ranks_may_prefetch() -> None:
    of_rank = PrefetchBudget.of_rank
    assert of_rank(1 << 30, 4) == PrefetchBudget(32 << 20, of_stores=False)
    assert of_rank(64 << 20, 4) == PrefetchBudget(2 << 20, of_stores=True)
    assert of_rank(900 << 20, 1) == PrefetchBudget(8 << 20, of_stores=True)


def test_the_least_budget_of_the_ranks_of_a_process_is_in_force() -> None:
    small, large = PrefetchBudget(1 << 20, of_stores=True), PrefetchBudget(2 << 20, of_stores=True)
    with prefetch_within(large):
        assert _in_force() == ["2048", "2048"]
        with prefetch_within(small), prefetch_within(large):
            assert _in_force() == ["1024", "1024"]
        assert _in_force() == ["2048", "2048"]
    assert _in_force() == [None, None]


def test_budgets_of_files_on_disk_are_void_when_files_of_stores_may_be_read() -> None:
    on_disk, of_stores = PrefetchBudget(1 << 20, of_stores=False), PrefetchBudget(2 << 20, of_stores=True)
    with prefetch_within(on_disk):
        stores_may_be_read()
        assert _in_force() == [None, None]
        with prefetch_within(of_stores):
            assert _in_force() == ["2048", "2048"]
        assert _in_force() == [None, None]


@contextmanager
def _file_of_a_store() -> Iterator[pl.LazyFrame]:
    file = io.BytesIO()
    pl.DataFrame({"a": [1, 2]}).write_parquet(file)
    with web_server({"/a.parquet": file.getvalue()}) as address:
        yield pl.scan_parquet(f"http://{address}/a.parquet")


def test_a_query_over_files_of_a_store_says_so() -> None:
    with _file_of_a_store() as rows:
        frames = run_ranks(2, lambda transport: run_query(rows, transport).frame)
    assert pl.concat(frames)["a"].to_list() == [1, 2]
    assert read_ahead._stores_read


def test_so_does_one_that_polars_runs_as_it_is() -> None:
    with _file_of_a_store() as rows, SPMDEngine() as engine:
        assert pl.LazyFrame({"a": [1]}).collect(engine=engine).height == 1
        assert not read_ahead._stores_read
        assert rows.collect(engine=engine)["a"].to_list() == [1, 2]
        assert read_ahead._stores_read


def test_so_does_one_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise UnsupportedPolarsError("a step of a later Polars")

    monkeypatch.setattr(whole_queries, "read_plan", unreadable)
    with SPMDEngine() as engine:
        assert pl.LazyFrame({"a": [1]}).collect(engine=engine).height == 1
    assert read_ahead._stores_read


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROW_GROUPS, "77")
    with prefetch_within(PrefetchBudget(2 << 20, of_stores=True)):
        assert _in_force() == ["77", "2048"]
    assert _in_force() == ["77", None]


def test_an_engine_sets_it_while_it_is_open() -> None:
    of_threads = str(pl.thread_pool_size() * 8 << 10)
    with SPMDEngine():
        assert _in_force() == [of_threads, of_threads]
    with SPMDEngine(rapidsmpf_options={"spill_device_limit": "100MB"}):
        assert all(0 < int(kibibytes or 0) < 4096 for kibibytes in _in_force())
    assert _in_force() == [None, None]


_SLOW_READER = """
import sys, time
import polars as pl

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def read(batch):
    global most, batches
    time.sleep(0.2)
    most, batches = max(most, resident()), batches + 1
    return batches == 4

batches = 0

pl.DataFrame({"a": [1]}).lazy().filter(pl.col("a") > 0).collect(engine="streaming")  # starts its threads
before = most = resident()
pl.scan_parquet(sys.argv[1]).sink_batches(read)
print(most - before)
"""


def test_polars_heeds_it(tmp_path: Path) -> None:
    """The variables are no documented interface: a release of Polars that calls them otherwise fails here."""
    number = pl.int_range(1_500_000)
    text = pl.concat_str(number.hash(seed) for seed in range(6)).alias("text")
    path = tmp_path / "rows.parquet"
    pl.select(text).write_parquet(path, row_group_size=100_000, compression="uncompressed", statistics=False)

    def held(budget: str) -> int:
        command = [sys.executable, "-c", _SLOW_READER, str(path)]
        settings = {"POLARS_ROW_GROUP_PREFETCH_SIZE": "32", "POLARS_MAX_THREADS": "2", ROW_GROUPS: budget}
        run = subprocess.run(
            command, env=os.environ | settings, check=True, capture_output=True, text=True, timeout=60
        )
        return int(run.stdout)

    much, little = held("1000000"), held("2048")
    assert much - little > 20 << 20, f"{little} and {much} bytes"

"""A rank that is killed at any moment of a sink leaves the old output or the new one, never a part of either.

From the moment on, nothing that the rank does to the file system has an effect: so it is with a process that was
killed, but the other ranks see it end.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator.communicator import Communicator

from cudf_polars.engine import folder_exchange, folder_sinks, late_files, partition_files
from cudf_polars.engine.delta_sinks import DeltaSink, DeltaWrite
from cudf_polars.engine.iceberg_sinks import IcebergSink
from cudf_polars.engine.spmd import SPMDEngine
from support.cluster import on_ranks
from support.tables import catalog_of

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog

OLD = pl.DataFrame({"k": [1, 2, 3, 3], "v": [0, 1, 2, 3]})
NEW = pl.DataFrame({"k": [1, 2, 2, 4, 4, 4], "v": [10, 11, 12, 13, 14, 15]})
CALLS = ("rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir", "symlink")


TABLE_CALLS = [
    (DeltaWrite, "create"),
    (DeltaSink, "write"),
    (DeltaSink, "_commit_actions"),
    (IcebergSink, "_write"),
    (IcebergSink, "_commit_all"),
    (SqlCatalog, "commit_table"),
]
"""What is called between changes that others than Python make."""


class Killed(BaseException):
    """The rank has been killed."""


class Killer:
    """Lets a thread make some calls that change the file system, and none after these."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
        self._left = calls
        self.victim: threading.Thread | None = None
        self.killed = False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        monkeypatch.setattr(late_files, "_PATIENCE_SECONDS", 0.1)  # who is killed removes nothing
        for owner, name in TABLE_CALLS:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))
        exchange = self._counted(folder_exchange.exchange)
        for module in (folder_sinks, partition_files):
            monkeypatch.setattr(module, "exchange", exchange)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is self.victim:
                self._left -= 1
                if self._left < 0:
                    self.killed = True
                    raise Killed
            return call(*args, **kwargs)

        return counted


def sink_parts(rows: pl.DataFrame, target: Path, engine: SPMDEngine) -> None:
    mine = rows[engine.rank :: engine.nranks]
    mine.lazy().sink_parquet(target, engine=engine)


def sink_partitions(rows: pl.DataFrame, target: Path, engine: SPMDEngine) -> None:
    mine = rows[engine.rank :: engine.nranks]
    mine.lazy().sink_parquet(pl.PartitionBy(target, key="k"), engine=engine)


def append_to_delta(rows: pl.DataFrame, target: Path, engine: SPMDEngine, mode: str = "append") -> None:
    mine = rows[engine.rank :: engine.nranks]
    mine.lazy().sink_delta(target, mode=mode, engine=engine)


def overwrite_delta(rows: pl.DataFrame, target: Path, engine: SPMDEngine) -> None:
    append_to_delta(rows, target, engine, "overwrite")


def append_to_iceberg(rows: pl.DataFrame, target: Path, engine: SPMDEngine, mode: str = "append") -> None:
    mine, catalog = rows[engine.rank :: engine.nranks], catalog_of(target.parent)
    mine.lazy().sink_iceberg("db.t", mode=mode, catalog=catalog, engine=engine)


def overwrite_iceberg(rows: pl.DataFrame, target: Path, engine: SPMDEngine) -> None:
    append_to_iceberg(rows, target, engine, "overwrite")


def contents(target: Path) -> pl.DataFrame:
    """Read all that anybody finds below a folder."""
    return pl.scan_parquet(target / "**/*.parquet", hive_partitioning=False).select("v").sort("v").collect()


def kept_of_old(sink: Callable[..., None]) -> pl.DataFrame:
    # Files of partitions that the new output does not have stay, as with Polars.
    return OLD.filter(pl.col("k") == 3) if sink is sink_partitions else OLD.clear()


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("sink", [sink_parts, sink_partitions])
def test_a_rank_that_is_killed(
    sink: Callable[..., None], victim: int, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pl.concat([NEW, kept_of_old(sink)]) if exists else NEW
    ends = set()
    for calls in range(200):
        target = tmp_path / f"{calls}" / "out"
        target.parent.mkdir()
        if exists:
            on_ranks(2, lambda comm, target=target: _run(comm, sink, OLD, target))
        killed = write_new_rows(sink, target, victim, calls, monkeypatch)
        if not exists and not target.exists():
            ends.add("none")
        else:
            found = contents(target)
            is_new = found.equals(new.select("v").sort("v"))
            assert is_new or (exists and found.equals(OLD.select("v").sort("v"))), (calls, found)
            ends.add("new" if is_new else "old")
        if not killed:
            break
    assert not killed
    assert ends == {"new", "old" if exists else "none"}


def write_new_rows(
    sink: Callable[..., None], target: Path, victim: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Write with two ranks and kill ``victim`` at call number ``calls``; return whether it came that far."""
    with monkeypatch.context() as patch:
        killer = Killer(patch, calls)

        def work(comm: Communicator) -> None:
            if comm.rank == victim:
                killer.victim = threading.current_thread()
            _run(comm, sink, NEW, target)

        try:
            on_ranks(2, work)
        except BaseException:
            if not killer.killed:
                raise
    return killer.killed


def _run(comm: Communicator, sink: Callable[..., None], rows: pl.DataFrame, target: Path) -> None:
    with SPMDEngine(comm=comm) as engine:
        sink(rows, target, engine)


SCRIPT = """
import os, signal, sys
import polars as pl
from cudf_polars import SPMDEngine
from cudf_polars.engine.folder_sinks import FolderParts

place = FolderParts._place
def kill(*args):
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    place(*args)
    os.kill(os.getpid(), signal.SIGKILL)
FolderParts._place = kill
with SPMDEngine() as engine:
    pl.LazyFrame({"k": [7], "v": [99]}).sink_parquet(sys.argv[1], engine=engine)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_is_killed(moment: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with SPMDEngine() as engine:
        OLD.lazy().sink_parquet(target, engine=engine)
        ended = subprocess.run([sys.executable, "-c", SCRIPT, str(target), moment], check=False, timeout=120)
        assert ended.returncode == -signal.SIGKILL
        expected = OLD if moment == "before" else pl.DataFrame({"k": [7], "v": [99]})
        assert_frame_equal(pl.read_parquet(target), expected)
        NEW.lazy().sink_parquet(target, engine=engine)
    assert_frame_equal(pl.read_parquet(target), NEW)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("sink", [append_to_delta, overwrite_delta, append_to_iceberg, overwrite_iceberg])
def test_a_rank_that_is_killed_while_it_writes_a_table(
    sink: Callable[..., None], victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pl.concat([OLD, NEW]) if sink in (append_to_delta, append_to_iceberg) else NEW
    ends = []
    for calls in range(200):
        target = tmp_path / f"{calls}" / "out"
        target.parent.mkdir()
        if sink in (append_to_delta, overwrite_delta):
            OLD.write_delta(target)
        else:
            catalog_of(target.parent).create_namespace("db")
            catalog_of(target.parent).create_table("db.t", schema=OLD.to_arrow().schema).append(
                OLD.to_arrow()
            )
        killed = write_new_rows(sink, target, victim, calls, monkeypatch)
        if sink in (append_to_delta, overwrite_delta):
            found = pl.read_delta(str(target))
        else:
            found = pl.scan_iceberg(catalog_of(target.parent).load_table("db.t")).collect()
        rows = sorted(found.rows())
        assert rows in (sorted(OLD.rows()), sorted(new.rows())), calls
        ends.append(rows == sorted(new.rows()))
        if not killed:
            break
    assert not killed
    assert len(ends) > 1
    assert ends[-1]
    assert not ends[0]

"""What is left of ``sink_iceberg`` when a rank, a query or a commit fails: the table as it was, and no files."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from support.ranks import run_ranks
from support.tables import ROWS

pytest.importorskip("pyiceberg")

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from cudf_polars.engine import iceberg_sinks
from cudf_polars.engine.iceberg_sinks import IcebergSink
from support.iceberg import (
    KINDS,
    MORE,
    OwnError,
    failing,
    files_below,
    make,
    new_catalog,
    read,
    sink_errors,
    sink_iceberg,
    split,
    strict_warnings,
    summaries,
)

HERE = str(Path(__file__).parents[1])
SECONDS = 60


@pytest.fixture(autouse=True)
def warnings_of_tables():
    with strict_warnings():
        yield


@pytest.fixture
def catalog(tmp_path):
    return new_catalog(tmp_path / "iceberg")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("kind", ["plain", "parted"])
@pytest.mark.parametrize(("bad_rank", "when"), [(0, "while it writes"), (2, "while it writes"), (2, "then")])
def test_a_rank_that_fails_leaves_nothing(mode, kind, bad_rank, when, catalog, tmp_path, monkeypatch):
    table = make(catalog, **KINDS[kind])
    sink_iceberg(split(ROWS, 2), {"target": "db.t", "catalog": catalog, "mode": "append"})
    before, location = files_below(tmp_path), catalog.load_table("db.t").metadata_location
    own = IcebergSink._write

    def write(self, rows, *more):
        if self._transport.rank != bad_rank:
            return own(self, rows, *more)
        if when == "then":
            own(self, rows, *more)
            raise OwnError("of this rank")
        return own(self, failing(rows.collect()), *more)

    monkeypatch.setattr(IcebergSink, "_write", write)
    call = {"target": "db.t", "catalog": catalog, "mode": mode}
    errors = sink_errors(split(MORE, 3), call)
    assert [type(error) for error in errors] == [OwnError] * 3
    assert all("of this rank" in str(error) for error in errors)
    assert files_below(tmp_path) == before
    assert catalog.load_table("db.t").metadata_location == location
    monkeypatch.undo()
    sink_iceberg(split(MORE, 3), call)  # and the next one works
    assert read(table).height == MORE.height + (0 if mode == "overwrite" else ROWS.height)


def test_files_that_polars_begins_after_a_failure(catalog, tmp_path, monkeypatch):
    many = pl.DataFrame({"id": range(2_000_000)}).with_columns(
        region=pl.col("id") % 50, v=pl.col("id").hash() // 2
    )
    many = many.cast({"v": pl.Int64})
    table = catalog.create_table("db.many", schema=many.to_arrow().schema)
    with table.update_spec() as change:
        change.add_identity("region")
    before, own = files_below(tmp_path), IcebergSink._write

    def write(self, rows, *more):
        def fail(frame):
            time.sleep(delays.pop())  # Polars is about to write what it has
            raise OwnError("of this rank")

        bad = many.lazy().map_batches(fail, schema=many.schema)
        return own(self, pl.concat([rows, rows, bad]) if self._transport.rank == 1 else rows, *more)

    monkeypatch.setattr(IcebergSink, "_write", write)
    delays = [0.65, 0.55, 0.45, 0.35, 0.25]
    while delays:
        sink_errors([many.head(10), many], {"target": table, "mode": "append"})
        time.sleep(0.1)
        assert files_below(tmp_path) == before


def test_a_query_that_fails_leaves_nothing(catalog, tmp_path):
    table = make(catalog)
    before = files_below(tmp_path)

    def rows(rank):
        def fail(column):
            if rank == 1:
                raise OwnError("of this rank")
            return column

        part = split(ROWS, 3)[rank].lazy()
        return part.with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Float64, is_elementwise=True))

    errors = sink_errors([rows(rank) for rank in range(3)], {"target": table, "mode": "append"})
    assert all("of this rank" in str(error) for error in errors)
    assert files_below(tmp_path) == before
    assert summaries(table) == []


@pytest.mark.parametrize("error", [CommitFailedException("no"), OSError("no"), ValueError("no")], ids=repr)
def test_a_commit_that_fails_leaves_nothing(error, catalog, tmp_path, monkeypatch):
    table = make(catalog)
    sink_iceberg(split(ROWS, 2), {"target": table, "mode": "append"})
    before = files_below(tmp_path)

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(type(catalog), "commit_table", refuse)
    errors = sink_errors(split(MORE, 3), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert [(type(one), str(one)) for one in errors] == [(type(error), "no")] * 3
    assert files_below(tmp_path) == before
    assert_frame_equal(read(table), ROWS, check_row_order=False)


def meanwhile(monkeypatch, work):
    """Let somebody else do ``work`` once, when the ranks have written and rank 0 is about to commit."""
    own = IcebergSink._commit_all

    def commit(self, files):
        monkeypatch.undo()
        work()
        return own(self, files)

    monkeypatch.setattr(IcebergSink, "_commit_all", commit)


def test_a_commit_of_somebody_else_meanwhile(catalog, tmp_path, monkeypatch):
    table = make(catalog, properties={"commit.retry.num-retries": "0"})
    meanwhile(monkeypatch, lambda: MORE.lazy().sink_iceberg("db.t", mode="append", catalog=catalog))
    errors = sink_errors(split(ROWS, 3), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert [type(error) for error in errors] == [CommitFailedException] * 3
    assert_frame_equal(read(table), MORE)
    assert len([name for name in files_below(tmp_path) if name.endswith(".parquet")]) == 1

    # Where the table lets pyiceberg try again, appending meets nobody.
    table = make(catalog, "db.retried")
    meanwhile(monkeypatch, lambda: MORE.lazy().sink_iceberg("db.retried", mode="append", catalog=catalog))
    sink_iceberg(split(ROWS, 3), {"target": "db.retried", "catalog": catalog, "mode": "append"})
    assert_frame_equal(read(table), pl.concat([MORE, ROWS]), check_row_order=False)
    assert len(summaries(table)) == 2


def test_what_is_committed_stays(catalog, monkeypatch):
    table, own = make(catalog), type(catalog).commit_table

    def commit_and_fail(self, *arguments):
        own(self, *arguments)
        raise OSError("after the commit")

    # Polars finds that the commit is there after all.
    with monkeypatch.context() as patched:
        patched.setattr(type(catalog), "commit_table", commit_and_fail)
        sink_iceberg(split(ROWS, 2), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert_frame_equal(read(table), ROWS, check_row_order=False)

    own_of_rank = iceberg_sinks._state_class().commit

    def fail_later(self, files):
        own_of_rank(self, files)
        raise OSError("after the commit")

    state_class = iceberg_sinks._state_class()
    monkeypatch.setattr(state_class, "commit", fail_later)
    monkeypatch.setattr(iceberg_sinks, "_state_class", lambda: state_class)
    errors = sink_errors(split(MORE, 2), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert [str(error) for error in errors] == ["after the commit"] * 2


def test_files_stay_where_nobody_knows_whether_they_are_committed(catalog, tmp_path, monkeypatch):
    make(catalog)
    load, own = type(catalog).load_table, type(catalog).commit_table

    def commit_and_go(self, *arguments):
        own(self, *arguments)

        def gone(*_):
            raise OSError("the catalog is gone")

        monkeypatch.setattr(type(catalog), "load_table", gone)
        raise OSError("no answer")

    monkeypatch.setattr(type(catalog), "commit_table", commit_and_go)
    errors = sink_errors(split(ROWS, 2), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert [type(error) for error in errors] == [CommitStateUnknownException] * 2
    monkeypatch.setattr(type(catalog), "load_table", load)
    assert_frame_equal(read(catalog.load_table("db.t")), ROWS, check_row_order=False)


def test_a_rank_that_fails_after_it_told_its_files_takes_none_back(catalog, monkeypatch):
    """Rank 0 has committed them."""
    table, own = make(catalog), IcebergSink.commit

    def commit(self, facts):
        told = own(self, facts)
        if self._transport.rank == 1:
            raise OwnError("rank 1 fails")
        return told

    monkeypatch.setattr(IcebergSink, "commit", commit)
    found = sink_iceberg(split(ROWS, 2), {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert isinstance(found[1], OwnError)
    assert_frame_equal(read(table), ROWS, check_row_order=False)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from cudf_polars.engine import iceberg_sinks
from cudf_polars.engine.spmd import SPMDEngine
from support.tables import ROWS, catalog_of

def die(self, *_):
    if self._transport.rank == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return own(self, *_)

own = getattr(iceberg_sinks.IcebergSink, sys.argv[3])
setattr(iceberg_sinks.IcebergSink, sys.argv[3], die)
with SPMDEngine() as engine:
    ROWS.lazy().sink_iceberg("db.t", mode="overwrite", catalog=catalog_of(Path(sys.argv[2])), engine=engine)
"""


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("step", "rank"), [("_commit_all", 0), ("commit", 1)])
def test_a_rank_that_is_killed_leaves_the_old_version(step, rank, catalog, tmp_path):
    table = make(catalog)
    MORE.lazy().sink_iceberg(table, mode="append")
    job = run_ranks(2, KILLED, HERE, str(tmp_path / "iceberg"), step, str(rank), timeout=SECONDS)
    assert job.returncode != 0
    assert_frame_equal(read(table), MORE)
    assert len(summaries(table)) == 1

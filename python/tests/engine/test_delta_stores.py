"""``sink_delta`` to an object store by all ranks: their files stay where they are, and one commit names them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.delta_sinks import DeltaPlan, DeltaSink, DeltaWrite
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.delta import write_by_ranks
from support.ranks import run_ranks
from support.tables import ROWS

deltalake = pytest.importorskip("deltalake")
obstore = pytest.importorskip("obstore")
pytest.importorskip("moto")

HERE = str(Path(__file__).parents[1])
PARTS = [ROWS.head(200), ROWS.slice(200)]
SECONDS = 120


@pytest.fixture(scope="module")
def store():
    from support.moto_store import moto_process

    with moto_process() as found:
        yield found


@pytest.fixture
def options(store):
    return {**store.storage_options, "conditional_put": "etag"}


def objects(store, prefix):
    from cudf_polars.engine.delta_store import StoreFolder

    return StoreFolder(f"s3://bucket/{prefix}", store.storage_options).names()


def sink(target, parts, options, mode="error", **delta_options):
    """Let a rank for each of ``parts`` write."""
    write = DeltaWrite.of(
        {"target": target, "mode": mode, "storage_options": options, "delta_write_options": delta_options}
    )
    assert isinstance(write, DeltaWrite), write
    write_by_ranks(write, parts)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("keys", [[], ["region"]], ids=["plain", "parted"])
def test_every_mode(store, options, keys):
    ours, theirs = (f"s3://bucket/{name}-{len(keys)}" for name in ("ours", "theirs"))
    delta_options = {"partition_by": keys} if keys else {}
    for mode in ("error", "append", "overwrite", "append"):
        sink(ours, PARTS, options, mode, **delta_options)
        ROWS.lazy().sink_delta(theirs, mode=mode, storage_options=options, delta_write_options=delta_options)
        tables = [pl.read_delta(url, storage_options=options) for url in (ours, theirs)]
        assert_frame_equal(*tables, check_row_order=False)
    one, other = (deltalake.DeltaTable(url, storage_options=options) for url in (ours, theirs))
    assert one.schema() == other.schema()
    assert one.metadata().partition_columns == other.metadata().partition_columns == keys
    assert [h["operationParameters"]["mode"] for h in one.history()] == [
        h["operationParameters"]["mode"] for h in other.history()
    ]
    names = objects(store, f"ours-{len(keys)}")
    assert not [name for name in names if "/_delta_log/" in name and "riverrun" in name]
    assert pl.read_delta(ours, version=1, storage_options=options).height == 2 * ROWS.height
    found = pl.scan_delta(ours, storage_options=options).filter(pl.col("id") == 7).collect()
    assert found.height == 2
    assert one.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert pl.read_delta(ours, storage_options=options).height == 2 * ROWS.height


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_rank_that_fails_leaves_nothing(store, options, exists):
    target = f"s3://bucket/failed-{exists}"
    if exists:
        sink(target, PARTS, options)
    before = objects(store, f"failed-{exists}")

    def fail(_):
        raise ValueError("no rows")

    bad = [PARTS[0], PARTS[1].lazy().map_batches(fail, schema=ROWS.schema)]
    with pytest.raises(Exception, match="no rows"):
        sink(target, bad, options, "append")
    assert objects(store, f"failed-{exists}") == before


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_commit_that_fails_leaves_nothing(store, options, exists, monkeypatch):
    name = f"refused-{exists}"
    if exists:
        sink(f"s3://bucket/{name}", PARTS, options)
    before = objects(store, name)

    def refuse(*_):
        raise OSError("refused")

    monkeypatch.setattr(DeltaSink, "_commit_actions", refuse)
    with pytest.raises(OSError, match="refused"):
        sink(f"s3://bucket/{name}", PARTS, options, "append")
    assert objects(store, name) == before


@pytest.mark.timeout(SECONDS)
def test_what_is_committed_stays(store, options, monkeypatch):
    commit = DeltaSink._commit_actions

    def commit_and_fail(self, actions):
        commit(self, actions)
        raise OSError("after the commit")

    monkeypatch.setattr(DeltaSink, "_commit_actions", commit_and_fail)
    with pytest.raises(OSError, match="after the commit"):
        sink("s3://bucket/stays", PARTS, options)
    assert_frame_equal(
        pl.read_delta("s3://bucket/stays", storage_options=options), ROWS, check_row_order=False
    )


@pytest.mark.timeout(SECONDS)
def test_a_rank_that_fails_after_it_told_its_files_takes_none_back(store, options, monkeypatch):
    """Rank 0 may have committed them."""
    commit = DeltaSink.commit

    def commit_and_fail(self, facts):
        told = commit(self, facts)
        if self._transport.rank == 1:
            raise OSError("rank 1 fails")
        return told

    monkeypatch.setattr(DeltaSink, "commit", commit_and_fail)
    with pytest.raises(OSError, match="rank 1 fails"):
        sink("s3://bucket/told", PARTS, options)
    assert_frame_equal(
        pl.read_delta("s3://bucket/told", storage_options=options), ROWS, check_row_order=False
    )


def test_no_secret_is_shown(store, options):
    write = DeltaWrite.of({"target": "s3://bucket/x", "storage_options": options})
    assert isinstance(write, DeltaWrite)
    secret = options["aws_secret_access_key"]
    assert secret not in repr(write)
    assert secret not in write.describe()
    assert secret not in repr(DeltaPlan(write, "s3://bucket/x/hidden"))


@pytest.mark.timeout(SECONDS)
def test_two_ranks(store, options):
    run_ranks(
        2,
        """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
from support.tables import ROWS

warnings.simplefilter("error")
options = json.loads(sys.argv[2])
with SPMDEngine() as engine:
    rows = ROWS[engine.rank :: 2].lazy()
    for mode in ("error", "append", "overwrite"):
        rows.sink_delta("s3://bucket/spmd", mode=mode, storage_options=options, engine=engine)
    rows.sink_delta("s3://bucket/spmd", mode="ignore", storage_options=options, engine=engine)
""",
        HERE,
        json.dumps(options),
        timeout=SECONDS,
    ).check()
    assert_frame_equal(
        pl.read_delta("s3://bucket/spmd", storage_options=options), ROWS, check_row_order=False
    )
    assert len(deltalake.DeltaTable("s3://bucket/spmd", storage_options=options).file_uris()) == 2


@pytest.mark.timeout(SECONDS)
def test_dask(store, options):
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        rows = ROWS.lazy()
        for mode in ("error", "append"):
            rows.sink_delta("s3://bucket/dask", mode=mode, storage_options=options, engine=engine)
        with pytest.raises(deltalake.exceptions.DeltaError, match="already exists"):
            rows.sink_delta("s3://bucket/dask", storage_options=options, engine=engine)
    found = pl.read_delta("s3://bucket/dask", storage_options=options)
    assert_frame_equal(found, pl.concat([ROWS, ROWS]), check_row_order=False)
    assert len(deltalake.DeltaTable("s3://bucket/dask", storage_options=options).file_uris()) == 4

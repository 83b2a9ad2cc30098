"""``sink_delta`` and ``sink_iceberg``: all rows of all ranks, in one commit; and nothing changes for other engines."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.ranks import run_ranks
from support.tables import ROWS, catalog_of

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

HERE = str(Path(__file__).parents[1])
SECONDS = 60


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.parquet"
    ROWS.write_parquet(path, row_group_size=50)
    return path


@pytest.fixture
def catalog(tmp_path):
    folder = tmp_path / "iceberg"
    folder.mkdir()
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    return catalog


def operations(path):
    return [entry["operationParameters"]["mode"] for entry in reversed(deltalake.DeltaTable(path).history())]


SCRIPT = """
import sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import polars as pl
sink_delta, sink_iceberg = pl.LazyFrame.sink_delta, pl.LazyFrame.sink_iceberg
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from rapidsmpf.error import RankFailedError
from support.tables import catalog_of

# What other engines get is what was there.
assert pl.LazyFrame.sink_delta.__wrapped__ is sink_delta
assert pl.LazyFrame.sink_iceberg.__wrapped__ is sink_iceberg

def raised(work):
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("no error")

rows, folder = pl.scan_parquet(sys.argv[2]), Path(sys.argv[3])
delta, catalog = str(folder / "delta"), catalog_of(folder / "iceberg")
with SPMDEngine() as engine:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert rows.sink_delta(delta, engine=engine) is None
    said = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    assert said == []
    warnings.simplefilter("ignore", FallbackWarning)

    # The writing rank's error, with its own type, on every rank; and the next works.
    error = raised(lambda: rows.sink_delta(delta, engine=engine))
    assert type(error).__name__ == "DeltaError" and "already exists" in str(error), error
    assert isinstance(raised(lambda: rows.sink_delta(delta, modus="append", engine=engine)), TypeError)
    error = raised(lambda: rows.sink_delta(delta, mode="merge", delta_merge_options={"predicate": "s.id = t.id"},
                                           engine=engine))
    assert isinstance(error, NotImplementedError) and "write_delta" in str(error), error

    # One rank's query fails: nothing is committed.
    rank = engine.rank
    def fail(column):
        if rank == 1:
            raise ValueError("of rank 1")
        return column
    bad = rows.with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Float64, is_elementwise=True))
    error = raised(lambda: bad.sink_delta(delta, mode="overwrite", engine=engine))
    assert "of rank 1" in str(error), error

    # Without a fallback, nothing is gathered.
    with SPMDEngine(comm=engine.comm, executor_options={"fallback_mode": "raise"}) as strict:
        evolve = {"schema_mode": "merge"}
        error = raised(lambda: rows.sink_delta(delta, mode="append", delta_write_options=evolve, engine=strict))
        assert isinstance(error, NotImplementedError) and "sink_delta with schema_mode" in str(error), error

    with pl.Config(engine_affinity=engine):
        rows.with_columns(pl.col("id") + 300).sink_delta(delta, mode="append")
    rows.sort("v").sink_delta(delta, mode="overwrite", engine=engine)

    for mode in ("append", "append", "overwrite"):
        made = rows.sink_iceberg("db.t", mode=mode, create_if_not_exists=True, catalog=catalog, engine=engine)
        assert made["metadata_path"].item() == catalog.load_table("db.t").metadata_location, made
    error = raised(lambda: rows.sink_iceberg("db.missing", mode="append", catalog=catalog, engine=engine))
    assert type(error).__name__ == "NoSuchTableError", error
    # Frames in memory are each rank's own.
    mine = pl.LazyFrame({"rank": [engine.rank] * 2})
    mine.sink_delta(str(folder / "mine"), engine=engine)
"""


@pytest.mark.parametrize("nranks", [2, 3])
def test_ranks_commit_once(nranks, table, tmp_path, catalog):
    run_ranks(nranks, SCRIPT, HERE, str(table), str(tmp_path), timeout=SECONDS).check()
    assert operations(tmp_path / "delta") == ["ErrorIfExists", "Append", "Overwrite"]
    versions = [pl.scan_delta(str(tmp_path / "delta"), version=version).collect() for version in range(3)]
    assert_frame_equal(versions[0], ROWS, check_row_order=False)
    assert versions[1]["id"].sort().to_list() == list(range(600))
    assert_frame_equal(versions[2], ROWS, check_row_order=False)
    iceberg = catalog.load_table("db.t")
    summaries = [snapshot.summary.operation.value for snapshot in iceberg.snapshots()]
    assert summaries == ["append", "append", "delete", "append"]  # overwriting is both, in one commit
    assert_frame_equal(pl.scan_iceberg(iceberg).collect(), ROWS, check_row_order=False)
    mine = pl.read_delta(str(tmp_path / "mine"))["rank"].sort().to_list()
    assert mine == sorted([*range(nranks)] * 2)


def check_one_writer(engine, table, folder, catalog):
    rows, delta = pl.scan_parquet(table), str(folder / "delta")
    rows.sink_delta(delta, engine=engine)
    rows.sink_delta(delta, mode="append", engine=engine)
    rows.sink_delta(delta, mode="overwrite", engine=engine)
    assert operations(delta) == ["ErrorIfExists", "Append", "Overwrite"]
    assert_frame_equal(pl.read_delta(delta), ROWS, check_row_order=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        merger = rows.with_columns(v=pl.col("v") + 1).sink_delta(
            delta,
            mode="merge",
            delta_merge_options={"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"},
            engine=engine,
        )
    texts = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    assert len(texts) == (engine.nranks > 1)
    assert all("sink_delta with mode='merge'" in text for text in texts)
    assert merger.when_matched_update_all().execute()["num_target_rows_updated"] == ROWS.height
    assert pl.read_delta(delta)["v"].sum() == ROWS["v"].sum() + ROWS.height
    for mode in ("append", "overwrite"):
        made = rows.sink_iceberg("db.t", mode=mode, create_if_not_exists=True, catalog=catalog, engine=engine)
        assert made["metadata_path"].item() == catalog.load_table("db.t").metadata_location
    assert_frame_equal(pl.scan_iceberg(catalog.load_table("db.t")).collect(), ROWS, check_row_order=False)


def test_one_rank_writes_as_polars_does(table, tmp_path, catalog):
    with SPMDEngine() as engine:
        check_one_writer(engine, table, tmp_path, catalog)
    with pytest.raises(RuntimeError, match="shutdown"):
        pl.scan_parquet(table).sink_delta(str(tmp_path / "delta"), mode="append", engine=engine)


def test_the_client_of_a_cluster_writes(table, tmp_path, catalog):
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)
        check_one_writer(engine, table, tmp_path, catalog)


@pytest.mark.parametrize("name", ["sink_delta", "sink_iceberg"])
def test_the_methods_look_like_polars_own(name):
    method = getattr(pl.LazyFrame, name)
    own = method._polars_own
    assert own is not method
    assert own.__module__ == "polars.lazyframe.frame"
    assert method.__name__ == name
    assert method.__doc__ == own.__doc__
    assert inspect.signature(method) == inspect.signature(own)


def test_installing_again_does_nothing():
    from cudf_polars.engine import catalog_sinks
    from cudf_polars.engine.core import StreamingEngine

    before = pl.LazyFrame.sink_delta, pl.LazyFrame.sink_iceberg
    catalog_sinks.install(StreamingEngine)
    assert (pl.LazyFrame.sink_delta, pl.LazyFrame.sink_iceberg) == before


@pytest.mark.parametrize(
    "engine", [None, "auto", "streaming", "in-memory", "gpu", pl.GPUEngine(), "nonsense"]
)
def test_other_engines_reach_polars_as_they_were_called(engine):
    from cudf_polars.engine import catalog_sinks
    from cudf_polars.engine.core import StreamingEngine

    calls = []

    def sink_anything(*args, **kwargs):
        calls.append((args, kwargs))
        return "what Polars returns"

    wrapped = catalog_sinks._wrapped(sink_anything, StreamingEngine)
    frame, optimizations = pl.LazyFrame(), pl.QueryOptFlags()
    options = {"mode": "merge", "optimizations": optimizations} | (
        {} if engine is None else {"engine": engine}
    )
    assert wrapped(frame, "target", **options) == "what Polars returns"
    assert calls == [((frame, "target"), options)]
    assert calls[0][0][0] is frame


@pytest.mark.parametrize("engine", ["streaming", "in-memory"])
def test_other_engines_write_with_ours_at_hand(engine, tmp_path):
    with SPMDEngine() as ours, pl.Config(engine_affinity=ours):
        ROWS.lazy().sink_delta(str(tmp_path / "delta"), engine=engine)
    assert_frame_equal(pl.read_delta(str(tmp_path / "delta")), ROWS, check_row_order=False)

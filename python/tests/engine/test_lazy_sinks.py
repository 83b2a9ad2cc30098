"""``sink_*(lazy=True)``: collecting it writes what the eager call writes; and nothing changes for other engines."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import warnings
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine import lazy_sinks
from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.ranks import run_ranks
from support.tables import ROWS

KINDS = ["parquet", "ipc", "csv", "ndjson"]
METHODS = [f"sink_{kind}" for kind in KINDS]
OPTIONS = {
    "parquet": {"compression": "zstd", "compression_level": 7, "row_group_size": 30},
    "ipc": {"compression": "lz4"},
    "csv": {"separator": ";", "include_header": False},
    "ndjson": {"compression": "gzip", "check_extension": False},
}


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def contents(folder):
    return {name: (Path(folder) / name).read_bytes() for name in files(folder)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [False, True], ids=["folder", "partitions"])
@pytest.mark.parametrize("to_directory", [True, False])
def test_one_rank_writes_the_same(kind, parts, to_directory, tmp_path):
    def target(name):
        return pl.PartitionBy(tmp_path / name, key="region") if parts else tmp_path / name

    method = getattr(pl.LazyFrame, f"sink_{kind}")
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=to_directory)) as engine:
        method(ROWS.lazy(), target("eager"), engine=engine, **OPTIONS[kind])
        lazy = method(ROWS.lazy(), path=target("lazy"), lazy=True, **OPTIONS[kind])
        assert os.listdir(tmp_path) == ["eager"]
        made = lazy.collect(engine=engine)
    assert made.shape == (0, 0)
    if to_directory or parts:
        assert contents(tmp_path / "eager") == contents(tmp_path / "lazy")
    else:
        assert (tmp_path / "eager").read_bytes() == (tmp_path / "lazy").read_bytes()


def test_every_way_to_collect(tmp_path):
    def lazy(name):
        return ROWS.lazy().sink_parquet(tmp_path / name, lazy=True)

    with SPMDEngine() as engine:
        pl.collect_all([lazy("all1"), ROWS.lazy(), lazy("all2")], engine=engine)
        lazy("background").collect(engine=engine, background=True).fetch_blocking()
        asyncio.run(_collect(lazy("async"), engine))
        with pl.Config(engine_affinity=engine):
            lazy("affinity").collect()
        written = lazy("twice")
        written.collect(engine=engine)
        written.collect(engine=engine)
    assert sorted(os.listdir(tmp_path)) == ["affinity", "all1", "all2", "async", "background", "twice"]
    for name in os.listdir(tmp_path):
        assert files(tmp_path / name) == ["part.00000.parquet"]
        assert_frame_equal(pl.read_parquet(tmp_path / name), ROWS)


async def _collect(lf, engine):
    return await lf.collect_async(engine=engine)


def test_a_folder_with_former_parts(tmp_path):
    ROWS.write_parquet(tmp_path / "file")
    lazy = ROWS.head(3).lazy().sink_parquet
    with SPMDEngine() as engine:
        lazy(tmp_path / "out", engine=engine)
        again = lazy(tmp_path / "out", lazy=True)
        with pytest.raises(Exception, match="directory"):
            again.collect(engine="streaming")
        ROWS.lazy().sink_parquet(tmp_path / "out", lazy=True).collect(engine=engine)
    assert files(tmp_path / "out") == ["part.00000.parquet"]
    assert_frame_equal(pl.read_parquet(tmp_path / "out"), ROWS)
    with pytest.raises(IsADirectoryError):
        lazy(tmp_path, lazy=True)  # where other files are
    with pytest.raises(IsADirectoryError):
        lazy(tmp_path / "out", engine="streaming")


def test_a_file_object():
    file = io.BytesIO()
    with SPMDEngine() as engine:
        ROWS.lazy().sink_parquet(file, lazy=True).collect(engine=engine)
    assert_frame_equal(pl.read_parquet(io.BytesIO(file.getvalue())), ROWS)


def test_a_query_that_fails_leaves_nothing(tmp_path):
    bad = ROWS.lazy().select(pl.col("region").cast(pl.Int64)).sink_parquet(tmp_path / "out", lazy=True)
    with SPMDEngine() as engine, pytest.raises(pl.exceptions.InvalidOperationError):
        bad.collect(engine=engine)
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import sys, warnings
import polars as pl
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from rapidsmpf.error import RankFailedError

rows, folder = pl.scan_parquet(sys.argv[1]), sys.argv[2]
with SPMDEngine() as engine:
    warnings.simplefilter("error", FallbackWarning)
    pl.collect_all(
        [getattr(rows, f"sink_{kind}")(f"{folder}/{kind}", lazy=True) for kind in ("parquet", "ipc", "csv", "ndjson")],
        engine=engine,
    )
    parts = pl.PartitionBy(f"{folder}/parts", key="region")
    rows.sort("v").sink_parquet(parts, lazy=True).collect(engine=engine)
    # Frames in memory are each rank's own: what would not be written by one rank.
    mine = pl.LazyFrame({"rank": [engine.rank] * 2_500_000})
    mine.sink_parquet(f"{folder}/mine", lazy=True).collect(engine=engine)
    rank = engine.rank
    def fail(column):
        if rank == 1:
            raise ValueError("of rank 1")
        return column
    bad = rows.with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Float64, is_elementwise=True))
    try:
        bad.sink_parquet(f"{folder}/bad", lazy=True).collect(engine=engine)
    except Exception as error:
        assert "of rank 1" in str(error), error
    else:
        raise AssertionError("no error")
    warnings.simplefilter("ignore", FallbackWarning)
    options = StreamingOptions(sink_to_directory=False)
    with SPMDEngine.from_options(options, comm=engine.comm) as files:
        rows.sink_parquet(f"{folder}/file", lazy=True).collect(engine=files)
"""


def test_two_ranks(tmp_path):
    table, out = tmp_path / "rows.parquet", tmp_path / "out"
    out.mkdir()
    ROWS.write_parquet(table, row_group_size=50)
    run_ranks(2, SCRIPT, str(table), str(out), timeout=60).check()
    assert sorted(os.listdir(out)) == ["csv", "file", "ipc", "mine", "ndjson", "parquet", "parts"]
    for kind in KINDS:
        names = files(out / kind)
        assert names == [f"part.0000{rank}.{kind}" for rank in (0, 1)]
        read = getattr(pl, f"read_{kind}")
        assert_frame_equal(pl.concat(read(out / kind / name) for name in names), ROWS)
    assert {Path(name).parent.name for name in files(out / "parts")} == {
        f"region={r}" for r in ROWS["region"]
    }
    assert pl.read_parquet(out / "parts").height == ROWS.height
    assert pl.read_parquet(out / "mine")["rank"].sum() == 2_500_000
    assert_frame_equal(pl.read_parquet(out / "file"), ROWS)


def test_dask(tmp_path, monkeypatch):
    table = tmp_path / "rows.parquet"
    ROWS.write_parquet(table, row_group_size=50)
    monkeypatch.chdir(tmp_path)
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        pl.scan_parquet(table).sink_parquet("out", lazy=True).collect(engine=engine)
        pl.scan_parquet(table).sink_csv(pl.PartitionBy("parts", key="region"), lazy=True).collect(
            engine=engine
        )
    assert files("out") == ["part.00000.parquet", "part.00001.parquet"]
    assert_frame_equal(pl.read_parquet("out"), ROWS)
    assert len(files("parts")) == 6


# -- what is wrapped --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_look_like_polars_own(name):
    method = getattr(pl.LazyFrame, name)
    own = method._polars_own
    assert own.__module__ == "polars.lazyframe.frame"
    assert method.__name__ == name
    assert method.__doc__ == own.__doc__
    assert inspect.signature(method) == inspect.signature(own)


def test_installing_again_does_nothing():
    before = [getattr(pl.LazyFrame, name) for name in METHODS]
    lazy_sinks.install()
    assert [getattr(pl.LazyFrame, name) for name in METHODS] == before


@pytest.mark.parametrize("engine", ["auto", "streaming", "in-memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_engines_write_what_they_did(kind, engine, tmp_path):
    method = getattr(ROWS.lazy(), f"sink_{kind}")
    assert method(tmp_path / "eager", engine=engine, **OPTIONS[kind]) is None
    assert method(tmp_path / "lazy", lazy=True, **OPTIONS[kind]).collect(engine=engine).shape == (0, 0)
    assert (tmp_path / "eager").read_bytes() == (tmp_path / "lazy").read_bytes()


def test_what_a_frame_remembers_shows_no_secret(tmp_path):
    lazy = ROWS.lazy().sink_parquet(tmp_path / "out", lazy=True, storage_options={"key": "secret"})
    assert lazy_sinks.sink_of(lazy).options["storage_options"] == {"key": "secret"}
    assert "secret" not in repr(lazy_sinks.sink_of(lazy))


def test_what_follows_forgets(tmp_path):
    lazy = ROWS.lazy().sink_parquet(tmp_path / "out", lazy=True)
    assert lazy_sinks.sink_of(lazy).target == tmp_path / "out"
    assert lazy_sinks.sink_of(lazy.clone()) is None
    assert lazy_sinks.sink_of(ROWS.lazy()) is None
    with pytest.raises(TypeError):
        ROWS.lazy().sink_parquet(tmp_path / "out", lazy=True, nonsense=1)

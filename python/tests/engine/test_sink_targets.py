"""What sinks may write to: folders here, in an object store what one process writes, never a folder named ``s3:``."""

from __future__ import annotations

import io
import json
import os
import pathlib
import warnings
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine.cluster import ClusterEngine
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.sinks import SinkTarget, destination
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.object_store import object_store
from support.ranks import run_ranks
from support.tables import ROWS

KINDS = ["parquet", "ipc", "csv", "ndjson"]


class CloudPath:
    """A path as cloud libraries have them: asked for a file's name, it begins to copy."""

    def __str__(self) -> str:
        return "gs://bucket/out"

    def __fspath__(self) -> str:
        raise AssertionError("it would copy the file now")


URLS = [
    "s3://bucket/out",
    "S3://bucket/out",
    "gs://bucket/out",
    "az://container/out",
    "abfss://container@account.dfs.core.windows.net/out",
    "hf://datasets/user/name",
    "http://host/out",
    "https://host/out",
    "file://host/out",
    "hdfs://host/out",
    "s3:/bucket/out",
    pathlib.Path("s3://bucket/out"),
    CloudPath(),
]


@pytest.fixture
def store():
    with object_store() as store:
        yield store


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Be in a folder of which a test sees what was written by mistake."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_several_ranks_do_not_write_one_file(tmp_path):
    def opened(transport):
        return SinkTarget.open(tmp_path / "out", "parquet", transport, "silent", {}, to_directory=False)

    with pytest.raises(NotImplementedError, match="sink_to_directory"):
        local_transport.run_ranks(2, opened)
    assert list(tmp_path.glob("out*")) == []


@pytest.mark.parametrize("target", [*URLS[5:]], ids=str)
def test_ranks_write_to_no_url_that_polars_does_not_know(target):
    with pytest.raises(NotImplementedError, match="cannot sink to"):
        destination(target)


@pytest.mark.parametrize("target", [*URLS[:5]])
def test_ranks_write_to_object_stores(target):
    assert destination(target) == target


def test_what_is_no_url():
    assert destination("out") == Path("out")
    assert destination("a folder/with: a colon") == Path("a folder/with: a colon")
    assert destination("./s3:/out") == Path("./s3:/out")
    assert destination("c:/out") == Path("c:/out")
    assert destination(Path("/out")) == Path("/out")
    assert destination("file:///a b/out%20") == Path("/a b/out%20")  # as Polars reads it
    assert destination("file:/out") == Path("/out")
    buffer, parts = io.BytesIO(), pl.PartitionBy("out", key="region")
    assert destination(buffer) is buffer
    assert destination(parts) is parts


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_in_an_object_store(kind, store, empty_folder):
    with SPMDEngine() as engine:
        getattr(ROWS.lazy(), f"sink_{kind}")(
            "s3://bucket/out/", storage_options=store.storage_options, engine=engine
        )
    assert list(store.objects) == [f"bucket/out/part.00000.{kind}"]
    read = getattr(pl, f"read_{kind}")(io.BytesIO(store.objects[f"bucket/out/part.00000.{kind}"]))
    assert_frame_equal(read, ROWS)
    assert list(empty_folder.iterdir()) == []


def test_one_rank_says_what_the_store_says(store):
    with SPMDEngine() as engine, pytest.raises(OSError, match="403"):
        ROWS.lazy().sink_csv("s3://bucket/out", storage_options={**store.storage_options, "aws_access_key_id": "x"},
                             engine=engine)  # fmt: skip
    assert store.objects == {}


def test_a_sink_keeps_no_rows(tmp_path):
    with SPMDEngine() as engine:
        ROWS.lazy().sink_parquet(tmp_path / "out", engine=engine)
        assert engine.last_query.frame.height == 0
    assert_frame_equal(pl.read_parquet(tmp_path / "out"), ROWS)


class _NoCluster(ClusterEngine):
    """A client of two ranks that are never asked for anything."""

    def __init__(self) -> None:
        here = ClusterInfo.local()
        super().__init__(StreamingOptions(), ["a", "b"], [here, here])

    def _ask(self, query, arguments, stop):
        raise AssertionError("a rank was asked")

    def _close(self) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", URLS[5:], ids=str)
def test_the_client_of_a_cluster_asks_no_rank(kind, target, empty_folder):
    with _NoCluster() as engine, pytest.raises(NotImplementedError, match="cannot sink to"):
        getattr(ROWS.lazy(), f"sink_{kind}")(target, engine=engine)
    assert list(empty_folder.iterdir()) == []


class _Answers(_NoCluster):
    def _run(self, lf, optimizations):
        return lf.collect()


def test_the_client_says_that_it_writes_parts_alone(empty_folder):
    with _Answers() as engine, pytest.warns(FallbackWarning, match="PartitionBy"):
        ROWS.lazy().sink_parquet(pl.PartitionBy("out", key="region"), mkdir=True, engine=engine)
    assert len(list(empty_folder.glob("out/region=*/*.parquet"))) == 3
    with _Answers() as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        ROWS.lazy().sink_parquet(io.BytesIO(), engine=engine)  # which only the client has


SCRIPT = """
import json, os, pathlib, sys, warnings
import polars as pl
from rapidsmpf.error import RankFailedError
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning

rows, folder, options = pl.scan_parquet(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])

def refused(work):
    try:
        work()
    except NotImplementedError as error:
        return str(error)
    raise AssertionError("no error")

def said(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]

with SPMDEngine() as engine:
    for kind in ("parquet", "ipc", "csv", "ndjson"):
        for url in ("http://host/no", pathlib.Path("s3://bucket/no")):
            text = refused(lambda: getattr(rows, f"sink_{kind}")(url, engine=engine))
            assert "cannot sink to" in text, text
        url = f"s3://bucket/all/{kind}/"
        for _ in range(2):  # the second in the place of the first
            assert said(lambda: getattr(rows, f"sink_{kind}")(url, storage_options=options, engine=engine)) == []
    try:
        rows.sink_csv("s3://bucket/all", storage_options=options, engine=engine)
    except (FileExistsError, RankFailedError) as error:
        assert "holds other files" in str(error), error
    else:
        raise AssertionError("other files were there")
    failing = rows.with_columns(pl.col("id").map_elements(lambda i: 1 // (i - 299), return_dtype=pl.Int64))
    try:
        failing.sink_parquet("s3://bucket/all/parquet", storage_options=options, engine=engine)
    except Exception as error:
        assert options["aws_secret_access_key"] not in str(error)
    else:
        raise AssertionError("no error")
    lazy = rows.filter(pl.col("id") >= 0).sink_parquet("s3://bucket/lazy.parquet", storage_options=options, lazy=True)
    text = said(lambda: lazy.collect(engine=engine))
    assert len(text) == (engine.rank == 0) and all("sink" in line for line in text), text
    mine = pl.LazyFrame({"rank": [engine.rank] * 2})
    lazy = mine.sink_parquet("s3://bucket/mine.parquet", storage_options=options, lazy=True)
    said(lambda: lazy.collect(engine=engine))

    for base in ("s3://bucket/parts/", folder + "/parts"):
        text = said(lambda: rows.sink_parquet(pl.PartitionBy(base, key="region"), storage_options=options, mkdir=True,
                                              engine=engine))
        assert len(text) == (engine.rank == 0) and all("PartitionBy" in line for line in text), text
    with SPMDEngine(comm=engine.comm, executor_options={"fallback_mode": "raise"}) as strict:
        text = refused(lambda: rows.sink_parquet(pl.PartitionBy(folder + "/strict", key="region"), engine=strict))
        assert "PartitionBy" in text, text
    assert said(lambda: rows.sink_parquet("file://" + folder + "/url", engine=engine)) == []

    # Each rank has 20 MB in memory, of which one would be written: refused on all ranks, and nothing is lost.
    large = pl.LazyFrame({"rank": [engine.rank] * 2_500_000})
    sink = large.sink_parquet("s3://bucket/large.parquet", storage_options=options, lazy=True)
    assert "one rank's data frames" in refused(lambda: sink.collect(engine=engine))
assert os.listdir() == []
"""


def test_two_ranks(store, tmp_path, empty_folder):
    pytest.importorskip("obstore")
    ROWS.write_parquet(tmp_path / "rows.parquet", row_group_size=50)
    arguments = str(tmp_path / "rows.parquet"), str(tmp_path), json.dumps(store.storage_options)
    run_ranks(2, SCRIPT, *arguments, timeout=60).check()
    assert os.listdir(empty_folder) == []

    def stored(name):
        return pl.read_parquet(io.BytesIO(store.objects.pop(name)))

    for kind in KINDS:
        names = sorted(name for name in store.objects if name.startswith(f"bucket/all/{kind}/"))
        assert [name.split(".")[1] for name in names] == ["00000", "00001"], names
        read = getattr(pl, f"read_{kind}")
        assert_frame_equal(pl.concat(read(io.BytesIO(store.objects.pop(name))) for name in names), ROWS)
    assert_frame_equal(stored("bucket/lazy.parquet"), ROWS)
    assert stored("bucket/mine.parquet")["rank"].sort().to_list() == [0, 0, 1, 1]
    regions = {name.split("/")[2] for name in store.objects}
    assert regions == {"region=north", "region=south", "region=east"}
    assert sum(stored(name).height for name in list(store.objects)) == ROWS.height
    assert store.objects == {}
    assert_frame_equal(
        pl.read_parquet(tmp_path / "parts"), ROWS, check_row_order=False, check_column_order=False
    )
    assert not (tmp_path / "strict").exists()
    assert sorted(path.name for path in (tmp_path / "url").iterdir()) == [
        "part.00000.parquet",
        "part.00001.parquet",
    ]
    assert_frame_equal(pl.read_parquet(tmp_path / "url"), ROWS)

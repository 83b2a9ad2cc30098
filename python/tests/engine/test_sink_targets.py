"""What sinks may write to: folders here, in an object store what one process writes, never a folder named ``s3:``."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import warnings
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine.cluster import ClusterEngine
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.sink_destinations import UsedFolder, destination
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.lower import FallbackWarning
from support.object_store import object_store
from support.ranks import run_ranks
from support.sinks import opened_on_ranks, write_and_commit
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
    ((name, content),) = store.objects.items()
    assert re.fullmatch(rf"bucket/out/part\.00000\.[0-9a-f]{{12}}\.{kind}", name)
    assert_frame_equal(getattr(pl, f"read_{kind}")(io.BytesIO(content)), ROWS)
    assert list(empty_folder.iterdir()) == []


def test_one_rank_says_what_the_store_says(store):
    with SPMDEngine() as engine, pytest.raises(OSError, match="403"):
        ROWS.lazy().sink_csv("s3://bucket/out", storage_options={**store.storage_options, "aws_access_key_id": "x"},
                             engine=engine)  # fmt: skip
    assert store.objects == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("out", pl.PartitionBy("out", key="region")),
        (pl.PartitionBy("one", key="region"), pl.PartitionBy("two", key="region")),
        (pl.PartitionBy("out", key="region"), pl.PartitionBy("out", key="id")),
        (pl.PartitionBy("out", key="id", file_path_provider=str), pl.PartitionBy("out", key="id")),
        (io.BytesIO(), "out"),
    ],
    ids=["kind", "base", "key", "provider", "file object"],
)
def test_ranks_with_different_targets_all_raise(first, second, empty_folder):
    found = []

    def work(*given):
        with pytest.raises(
            QueryMismatchError, match=r"different targets: rank 0 to .*, rank 1 to "
        ) as caught:
            write_and_commit(*given)
        found.append(caught)

    opened_on_ranks(2, work, lambda rank: (first, second)[rank])
    assert len(found) == 2
    assert list(empty_folder.iterdir()) == []


def test_a_home_folders_files_are_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    opened_on_ranks(2, write_and_commit, "~/out")
    opened_on_ranks(2, write_and_commit, "~/out")
    (tmp_path / "out" / "notes").write_text("the user's")
    with pytest.raises(FileExistsError, match="'notes'"):
        opened_on_ranks(2, write_and_commit, "~/out")
    assert sorted(os.listdir(tmp_path / "out")) == ["notes", "part.00000.parquet", "part.00001.parquet"]
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
        ROWS.lazy().sink_parquet("~/rows.parquet", engine=engine)
    assert pl.read_parquet(tmp_path / "rows.parquet").height == ROWS.height


def test_a_callback_that_fails_comes_after_the_sink(tmp_path):
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)

    def callback(_):
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        opened_on_ranks(2, write_and_commit, out, sinked_paths_callback=callback)
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert pl.read_parquet(out).height == ROWS.height


def test_new_parts_in_a_store_stay_when_the_old_ones_cannot_be_deleted(store, monkeypatch):
    obstore = pytest.importorskip("obstore")
    options = {"storage_options": store.storage_options}
    opened_on_ranks(2, write_and_commit, "s3://bucket/out", **options)
    former = set(store.objects)

    def delete(*_):
        raise ValueError("with a secret of the request")

    monkeypatch.setattr(obstore, "delete", delete)
    with pytest.raises(OSError, match="former parts") as caught:
        opened_on_ranks(2, write_and_commit, "s3://bucket/out", **options)
    assert "secret" not in str(caught.value)
    new = set(store.objects) - former
    assert sum(pl.read_parquet(io.BytesIO(store.objects[name])).height for name in new) == ROWS.height


def test_one_rank_writes_to_a_device():
    master, slave = os.openpty()
    try:
        with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
            pl.LazyFrame({"a": [1, 2]}).sink_csv(os.ttyname(slave), engine=engine)
        written = b""
        while written.count(b"\n") < 3:  # a terminal may give a part of what is written
            written += os.read(master, 100)
        assert written.split() == [b"a", b"1", b"2"]
        assert Path(os.ttyname(slave)).is_char_device()
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_one_ranks_file_has_the_ending_of_its_compression(kind, tmp_path):
    sink = getattr(ROWS.lazy(), f"sink_{kind}")
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
        for name, options in (("rows", {"compression": "gzip"}), ("rows.gz", {})):
            path = tmp_path / f"{name}.{kind}" if options else tmp_path / name
            for engines in ("streaming", engine):
                with pytest.raises(pl.exceptions.InvalidOperationError, match="check_extension"):
                    sink(path, engine=engines, **options)
            assert not path.exists()
            sink(path, engine=engine, check_extension=False, **options)
        sink(tmp_path / "rows.csv.gz", engine=engine, compression="gzip")


def test_no_secret_of_a_url_is_shown():
    for url in ("https://user:secret@host/out?sig=secret", Path("https://host/out?sig=secret")):
        with pytest.raises(NotImplementedError, match="cannot sink to") as caught:
            destination(url)
        assert "secret" not in str(caught.value)


def test_a_sink_keeps_no_rows(tmp_path):
    with SPMDEngine() as engine:
        ROWS.lazy().sink_parquet(tmp_path / "out", engine=engine)
        assert engine.last_query.frame.height == 0
    assert_frame_equal(pl.read_parquet(tmp_path / "out"), ROWS)


@pytest.mark.parametrize("to_directory", [True, False])
def test_the_callback_hears_of_the_final_path(to_directory, tmp_path):
    told = []
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=to_directory)) as engine:
        ROWS.lazy().sink_parquet(
            tmp_path / "out", engine=engine, sinked_paths_callback=lambda args: told.extend(args.paths)
        )
    path = tmp_path / "out" / "part.00000.parquet" if to_directory else tmp_path / "out"
    assert [(file.path, file.num_rows) for file in told] == [(str(path), ROWS.height)]
    assert told[0].num_bytes == path.stat().st_size


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


def test_the_folder_of_a_clusters_client_stays_that_folder(empty_folder, tmp_path):
    class Asked(Exception):
        pass

    class _Asks(_NoCluster):
        def _ask(self, query, arguments, stop):
            raise Asked(*(target for _, target, *_ in arguments))

    def asked(target):
        with _Asks() as engine, pytest.raises(Asked) as caught:
            ROWS.lazy().sink_parquet(target, engine=engine)
        assert len(caught.value.args) == 2
        return caught.value.args[0]

    assert asked(tmp_path / "out") == str(tmp_path / "out")
    assert asked(".") == UsedFolder(str(empty_folder))
    assert not asked(pl.PartitionBy(tmp_path / "out", key="region")).is_used
    assert asked(pl.PartitionBy("..", key="region")).is_used
    for _ in range(2):
        opened_on_ranks(2, write_and_commit, UsedFolder(str(tmp_path / "out")))
        inode = (tmp_path / "out").stat().st_ino
    assert sorted(os.listdir(tmp_path / "out")) == ["part.00000.parquet", "part.00001.parquet"]
    assert (tmp_path / "out").stat().st_ino == inode


class _Answers(_NoCluster):
    def _run(self, lf, optimizations):
        return lf.collect()


def test_the_client_says_that_it_writes_parts_alone(empty_folder):
    parts = pl.PartitionBy("out", key="region")
    with (
        _Answers() as engine,
        pytest.warns(FallbackWarning, match="PartitionBy with a sinked_paths_callback"),
    ):
        ROWS.lazy().sink_parquet(parts, sinked_paths_callback=lambda _: None, engine=engine)
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
    text = said(lambda: lazy.clone().collect(engine=engine))  # which has forgotten how it was made
    assert len(text) == (engine.rank == 0) and all("sink" in line for line in text), text
    mine = pl.LazyFrame({"rank": [engine.rank] * 2})
    lazy = mine.sink_parquet("s3://bucket/mine.parquet", storage_options=options, lazy=True)
    said(lambda: lazy.clone().collect(engine=engine))

    for base in ("s3://bucket/parts/", folder + "/parts"):
        assert said(lambda: rows.sink_parquet(pl.PartitionBy(base, key="region"), storage_options=options, mkdir=True,
                                              engine=engine)) == []
    named = pl.PartitionBy("s3://bucket/named", key="region", file_path_provider=lambda a: a.partition_keys.item())
    text = said(lambda: rows.sink_parquet(named, storage_options=options, engine=engine))
    assert len(text) == (engine.rank == 0) and all("PartitionBy" in line for line in text), text
    with SPMDEngine(comm=engine.comm, executor_options={"fallback_mode": "raise"}) as strict:
        text = refused(lambda: rows.sink_parquet(named, storage_options=options, engine=strict))
        assert "PartitionBy" in text, text
    assert said(lambda: rows.sink_parquet("file://" + folder + "/url", engine=engine)) == []

    # Each rank has 20 MB in memory, of which one would be written: refused on all ranks, and nothing is lost.
    large = pl.LazyFrame({"rank": [engine.rank] * 2_500_000})
    sink = large.sink_parquet("s3://bucket/large.parquet", storage_options=options, lazy=True)
    assert "one rank's data frames" in refused(lambda: sink.clone().collect(engine=engine))
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
    names = {f"bucket/named/{region}" for region in ("north", "south", "east")}
    assert {name for name in store.objects if name.startswith("bucket/named/")} == names
    assert sum(stored(name).height for name in names) == ROWS.height
    regions = {name.split("/")[2] for name in store.objects}
    assert regions == {"region=north", "region=south", "region=east"}
    assert sum(stored(name).height for name in list(store.objects)) == ROWS.height
    assert store.objects == {}
    assert_frame_equal(
        pl.read_parquet(tmp_path / "parts"), ROWS, check_row_order=False, check_column_order=False
    )
    assert sorted(path.name for path in (tmp_path / "url").iterdir()) == [
        "part.00000.parquet",
        "part.00001.parquet",
    ]
    assert_frame_equal(pl.read_parquet(tmp_path / "url"), ROWS)

"""Sinks to ``pl.PartitionBy``: all ranks write, and the files are those that one process would name."""

from __future__ import annotations

import io
import json
import os
import re
import threading
import warnings
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from urllib.request import Request, urlopen

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.partition_sinks import folder_of_keys
from cudf_polars.engine.sink_destinations import ByOneWriter, partitioning_for_workers
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.moto_store import moto_store
from support.partitions import FRAME, PARTS, by_key, check_nothing_hidden, files, folders, read_all, sink
from support.ranks import run_ranks
from support.tables import ROWS

KINDS = ["parquet", "ipc", "csv", "ndjson"]


# -- names --------------------------------------------------------------------------------------------------------

TEXTS = [chr(c) for c in range(1, 128)] + ["é", "\u2028", "a/b", "", None]
COLUMNS = [
    pl.Series("text", [t if t is None else f"x{t}" for t in TEXTS]),
    pl.Series("plain", TEXTS),
    pl.Series("bool", [True, False, None]),
    pl.Series("int", [2**100, -1], dtype=pl.Int128),
    pl.Series("float", [1.5, 1e300, 1e16, 1e-7, float("nan"), float("-inf"), -0.5, 0.1]),
    pl.Series("float32", [0.1, 1e30], dtype=pl.Float32),
    pl.Series("date", [date(2020, 1, 1), date(1, 1, 1)]),
    pl.Series("datetime", [datetime(2020, 1, 1, 1, 2, 3, 4)], dtype=pl.Datetime("ns", "Europe/Paris")),
    pl.Series("ms", [datetime(2020, 1, 1)], dtype=pl.Datetime("ms")),
    pl.Series("time", [time(1, 2, 3, 4), time(1, 2, 3)]),
    pl.Series("decimal", [Decimal("1.50"), Decimal("-3.00")], dtype=pl.Decimal(10, 2)),
    pl.Series("cat", ["a b", "c"], dtype=pl.Categorical),
    pl.Series("enum", ["a b", "c"], dtype=pl.Enum(["a b", "c"])),
    pl.Series("bytes", [b"abc"]),
    pl.Series("null", [None], dtype=pl.Null),
    pl.Series("struct", [{"a": 1, "b": "x"}, {"a": None, "b": "y z"}]),
    pl.Series("a b=c", ["1"]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_folders_have_polars_names(column, tmp_path):
    frame = column.unique().to_frame()
    target = pl.PartitionBy(tmp_path / "polars", key=pl.col(column.name))
    frame.lazy().sink_ipc(target, engine="streaming")
    ours = {folder_of_keys(row) for row in frame.iter_slices(1)}
    assert folders(files(tmp_path / "polars")) == ours


def test_keys_that_are_no_text():
    with pytest.raises(pl.exceptions.PolarsError, match="cast"):
        folder_of_keys(pl.DataFrame({"k": [[1, 2]]}))


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_writes_what_polars_writes(kind, tmp_path):
    for options in (
        {"key": "k"},
        {"key": ["k", (pl.col("v") % 2).alias("w")], "include_key": False},
        {"max_rows_per_file": 4},
        {"key": pl.col("v") // 9, "max_rows_per_file": 2, "approximate_bytes_per_file": 1000},
        {"key": {"w": pl.col("v") > 3}, "approximate_bytes_per_file": None},
    ):
        name = "-".join(options)
        with SPMDEngine() as engine:
            target = pl.PartitionBy(tmp_path / "ours" / name, **options)
            getattr(FRAME.lazy(), f"sink_{kind}")(target, engine=engine)
        getattr(FRAME.lazy(), f"sink_{kind}")(pl.PartitionBy(tmp_path / "polars" / name, **options))
    ours, polars = (
        {n: (tmp_path / d / n).read_bytes() for n in files(tmp_path / d)} for d in ("ours", "polars")
    )
    assert set(ours) == set(polars)
    assert ours == polars
    assert sorted(os.listdir(tmp_path)) == ["ours", "polars"]
    check_nothing_hidden(tmp_path)


def test_files_of_ranks_are_numbered_as_those_of_one_process(tmp_path):
    sink(pl.PartitionBy(tmp_path / "out", key="v", max_rows_per_file=2), [
        pl.DataFrame({"v": [1] * 5 + [2], "i": range(6)}),
        pl.DataFrame({"v": [3, 1, 1], "i": range(6, 9)}),
        pl.DataFrame({"v": [2], "i": [9]}),
    ])  # fmt: skip
    ones = [f"v=1/0000000{i}.parquet" for i in range(4)]
    assert files(tmp_path / "out") == [
        *ones,
        "v=2/00000000.parquet",
        "v=2/00000001.parquet",
        "v=3/00000000.parquet",
    ]
    # In the order of their names, the rows of a partition have the order of the query.
    read = [pl.read_parquet(tmp_path / "out" / name)["i"].to_list() for name in ones]
    assert read == [[0, 1], [2, 3], [4], [7, 8]]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_without_rows_write_nothing(kind, tmp_path):
    target = pl.PartitionBy(tmp_path / "out", max_rows_per_file=4)
    sink(target, [FRAME.clear(), FRAME.head(6), FRAME.clear()], kind)
    ending = "jsonl" if kind == "ndjson" else kind
    assert files(tmp_path / "out") == [f"00000000.{ending}", f"00000001.{ending}"]
    # Of no rows at all, Polars writes one file without a key, and nothing with one.
    sink(pl.PartitionBy(tmp_path / "none", max_rows_per_file=4), [FRAME.clear()] * 3, kind)
    assert files(tmp_path / "none") == [f"00000000.{ending}"]
    sink(pl.PartitionBy(tmp_path / "keys", key="k"), [FRAME.clear()] * 3, kind)
    assert not (tmp_path / "keys").exists()
    check_nothing_hidden(tmp_path)


def test_a_null_and_its_name_keep_their_rows(tmp_path):
    frame = pl.DataFrame({"k": [None, "__HIVE_DEFAULT_PARTITION__"], "v": [1, 2]})
    sink(pl.PartitionBy(tmp_path / "out", key="k"), [frame])
    assert_frame_equal(read_all(tmp_path / "out"), frame, check_row_order=False)


# -- names of the user ----------------------------------------------------------------------------------------------


def test_the_users_names(tmp_path):
    frame = pl.DataFrame({"v": [1, 2, 1]})
    out = tmp_path / "out"
    for base, names in (
        ("relative", by_key),
        ("paths", lambda args: Path(by_key(args))),
        ("absolute", lambda args: str(out / "absolute" / by_key(args))),
    ):
        sink(pl.PartitionBy(out / base, key="v", file_path_provider=names), [frame, frame])
        assert files(out / base) == ["1/file0", "1/file1", "2/file0", "2/file1"], base
    numbers = iter(range(100))  # one process names all files
    sink(
        pl.PartitionBy(out / "state", key="v", file_path_provider=lambda _: str(next(numbers))),
        [frame, frame],
    )
    assert files(out / "state") == ["0", "1", "2", "3"]
    sink(pl.PartitionBy(out / "none", max_rows_per_file=2, file_path_provider=lambda a: str(a.index_in_partition)),
         [frame, frame])  # fmt: skip
    assert files(out / "none") == ["0", "1", "2", "3"]


def test_the_users_file_objects(tmp_path):
    written = []

    def objects(args):
        written.append(io.BytesIO())
        return written[-1]

    sink(
        pl.PartitionBy(tmp_path / "out", key="v", file_path_provider=objects),
        [pl.DataFrame({"v": [1, 2]})] * 2,
    )
    assert_frame_equal(
        pl.concat(pl.read_parquet(io.BytesIO(file.getvalue())) for file in written),
        pl.DataFrame({"v": [1, 2, 1, 2]}),
        check_row_order=False,
    )
    texts = []

    def text(args):
        texts.append(io.StringIO())
        return texts[-1]

    sink(
        pl.PartitionBy(tmp_path / "out", key="v", file_path_provider=text), [pl.DataFrame({"v": [1]})], "csv"
    )
    assert [file.getvalue() for file in texts] == ["v\n1\n"]
    assert files(tmp_path) == []


def test_the_users_names_of_keys_that_polars_cannot_name(tmp_path):
    frame = pl.DataFrame({"k": [[1], [2], [1]]})

    def names(args):
        return f"{args.partition_keys['k'].explode().item()}-{args.index_in_partition}"

    sink(pl.PartitionBy(tmp_path / "out", key="k", file_path_provider=names), [frame, frame])
    assert files(tmp_path / "out") == ["1-0", "1-1", "2-0", "2-1"]


def test_keys_that_differ_by_nanoseconds_are_numbered_apart(tmp_path):
    frame = pl.DataFrame({"k": [1, 2]}, schema={"k": pl.Datetime("ns")})

    def names(args):
        return f"{args.partition_keys['k'].to_physical().item()}-{args.index_in_partition}"

    sink(pl.PartitionBy(tmp_path / "out", key="k", file_path_provider=names), [frame, frame])
    assert files(tmp_path / "out") == ["1-0", "1-1", "2-0", "2-1"]


def test_a_file_object_that_fails_leaves_no_file(tmp_path):
    class Full(io.BytesIO):
        def write(self, _):
            raise OSError("no space")

    target = pl.PartitionBy(
        tmp_path / "out", key="v", file_path_provider=lambda a: Full() if a.partition_keys.item() else "file"
    )
    with pytest.raises(OSError, match="no space"):
        sink(target, [pl.DataFrame({"v": [0, 1]})])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/elsewhere/file", "does not start with base path"),
        ("s3://bucket/file", "does not start with base path"),
        ("a/../../file", "parent dir component"),
        ("same", "several files the path 'same'"),
    ],
)
def test_names_that_cannot_be(name, says, tmp_path):
    target = pl.PartitionBy(tmp_path / "out", key="v", file_path_provider=lambda _: name)
    with pytest.raises(pl.exceptions.ComputeError, match=re.escape(says)):
        sink(target, [pl.DataFrame({"v": [1, 2]})] * (1 if name == "same" else 2))
    assert list(tmp_path.iterdir()) == []


def by_key_alone(args):
    return f"{args.partition_keys.item()}.parquet"


def test_names_without_a_number_need_one_writer(tmp_path):
    """Polars calls the provider once for each partition; here it names files of several ranks."""
    objects = {}

    def one_object(args):
        return objects.setdefault(args.partition_keys.item(), io.BytesIO())

    given = [pl.DataFrame({"v": [1, 2, 1], "w": [rank] * 3}) for rank in range(2)]
    for names in (by_key_alone, one_object):
        target = pl.PartitionBy(tmp_path / "out", key="v", file_path_provider=names)

        def work(transport, target=target):
            opened = SinkTarget.open(target, "parquet", transport, "raise", {})
            opened.write(given[transport.rank].lazy())
            opened.commit(b"")
            needs = opened.needs
            opened.discard()
            opened = SinkTarget.open(ByOneWriter(target, needs.step), "parquet", transport, "silent", {})
            opened.write(given[transport.rank].lazy())
            assert opened.needs is None
            return needs.step, opened.commit(b"told")

        for step, told in local_transport.run_ranks(2, work):
            assert "add index_in_partition" in step
            assert told == [b"told"] * 2
        found = [io.BytesIO(file.getvalue()) for _, file in sorted(objects.items())]  # asked for in any order
        found = found or [tmp_path / "out" / name for name in ("1.parquet", "2.parquet")]
        rows = [pl.read_parquet(file).rows() for file in found]
        assert rows == [[(1, 0), (1, 0), (1, 1), (1, 1)], [(2, 0), (2, 1)]]
    assert files(tmp_path) == ["out/1.parquet", "out/2.parquet"]


def test_a_provider_that_fails(tmp_path):
    def names(args):
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        sink(pl.PartitionBy(tmp_path / "out", key="v", file_path_provider=names), PARTS)
    assert list(tmp_path.iterdir()) == []


def test_the_callback_hears_of_final_paths(tmp_path):
    told = []

    def callback(args):
        told.extend(args.paths)

    sink(pl.PartitionBy(tmp_path / "out", key="k"), PARTS, sinked_paths_callback=callback)
    assert sorted(file.path for file in told) == [
        str(tmp_path / "out" / name) for name in files(tmp_path / "out")
    ]
    assert sum(file.num_rows for file in told) == FRAME.height
    assert all(file.num_bytes == os.path.getsize(file.path) for file in told)


def test_the_callback_of_one_rank_hears_of_its_files(tmp_path):
    told = []

    def work(transport):
        options = (
            {"sinked_paths_callback": lambda args: told.extend(args.paths)} if transport.rank == 1 else {}
        )
        opened = SinkTarget.open(
            pl.PartitionBy(tmp_path / "out", key="k"), "parquet", transport, "raise", options
        )
        opened.write(PARTS[transport.rank].lazy(), **options)
        opened.commit(b"")

    local_transport.run_ranks(2, work)
    assert sum(file.num_rows for file in told) == PARTS[1].height
    assert all(Path(file.path).stat().st_size == file.num_bytes for file in told)


# -- what ranks cannot write ----------------------------------------------------------------------------------------


def test_another_url_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SPMDEngine() as engine, pytest.raises(NotImplementedError, match="cannot sink to"):
        FRAME.lazy().sink_parquet(pl.PartitionBy("http://host/out", key="k"), engine=engine)
    assert list(tmp_path.iterdir()) == []


def test_what_other_processes_cannot_write():
    lock = threading.Lock()
    key = pl.col("v").map_batches(lambda v: lock and v, return_dtype=pl.Int64, is_elementwise=True)
    target = pl.PartitionBy("out", key=key)
    assert "a function that cannot be sent" in partitioning_for_workers(target, {}, 2)
    held = pl.PartitionBy("out", key="v", file_path_provider=lambda _: str(lock))
    assert "a function that cannot be sent" in partitioning_for_workers(held, {}, 2)


# -- engines --------------------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys, warnings
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning

warnings.simplefilter("error", FallbackWarning)
rows, folder, options = pl.scan_parquet(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
with SPMDEngine() as engine:
    for kind in ("parquet", "ipc", "csv", "ndjson"):
        getattr(rows, f"sink_{kind}")(pl.PartitionBy(f"{folder}/{kind}", key="region"), engine=engine)
    rows.sink_parquet(pl.PartitionBy("s3://bucket/out", key="region"), storage_options=options, engine=engine)
    rank = engine.rank
    def fail(column):
        if rank == 1:
            raise ValueError("of rank 1")
        return column
    bad = rows.with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Float64, is_elementwise=True))
    for base in (f"{folder}/bad", f"{folder}/parquet", "s3://bucket/bad"):
        try:
            bad.sink_parquet(pl.PartitionBy(base, key="region"), storage_options=options, engine=engine)
        except Exception as error:
            assert "of rank 1" in str(error), error
        else:
            raise AssertionError("no error")
    rows.filter(pl.col("id") < 0).sink_parquet(pl.PartitionBy(f"{folder}/empty", key="region"), engine=engine)
    rows.head(3).sink_parquet(pl.PartitionBy(f"{folder}/few", max_rows_per_file=2), engine=engine)

    def numbered(args):
        return f"{args.partition_keys.item()}-{args.index_in_partition}.parquet"

    def plain(args):
        return f"{args.partition_keys.item()}.parquet"

    for base in (f"{folder}/named", "s3://named"):
        by_number = pl.PartitionBy(base, key="region", file_path_provider=numbered)
        rows.sink_parquet(by_number, storage_options=options, engine=engine)
        by_name = pl.PartitionBy(base, key="region", file_path_provider=plain)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows.sink_parquet(by_name, storage_options=options, engine=engine)
        texts = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
        assert len(texts) == (rank == 0) and all("index_in_partition" in text for text in texts), texts
        with SPMDEngine(comm=engine.comm, executor_options={"fallback_mode": "raise"}) as strict:
            try:
                rows.sink_parquet(by_name, storage_options=options, engine=strict)
            except NotImplementedError as error:
                assert "index_in_partition" in str(error), error
            else:
                raise AssertionError("no error")
"""


def test_two_ranks(tmp_path):
    pytest.importorskip("moto")
    table, out = tmp_path / "rows.parquet", tmp_path / "out"
    out.mkdir()
    ROWS.write_parquet(table, row_group_size=50)
    with moto_store() as store:
        urlopen(Request(f"{store.url}/named", method="PUT"), timeout=20).close()
        run_ranks(2, SCRIPT, str(table), str(out), json.dumps(store.storage_options), timeout=60).check()
        there = pl.scan_parquet("s3://bucket/**/*.parquet", storage_options=store.storage_options)
        stored = there.collect(engine="streaming")
        for base, options in ((out / "named", None), ("s3://named", store.storage_options)):
            for region, part in ROWS.partition_by("region", as_dict=True).items():
                for endings, rows in (((".parquet",), part), (("-0.parquet", "-1.parquet"), part)):
                    names = [f"{base}/{region[0]}{ending}" for ending in endings]
                    found = pl.scan_parquet(names, storage_options=options).collect(engine="streaming")
                    assert_frame_equal(found, rows)
    assert_frame_equal(stored, ROWS, check_row_order=False)
    for kind in KINDS:
        found = files(out / kind)
        assert folders(found) == {"region=north", "region=south", "region=east"}
        assert {Path(name).stem for name in found} == {"00000000", "00000001"}
        read = getattr(pl, f"read_{kind}")
        assert_frame_equal(pl.concat(read(out / kind / name) for name in found).select(ROWS.columns), ROWS,
                           check_row_order=False)  # fmt: skip
    assert sorted(os.listdir(out)) == ["csv", "few", "ipc", "named", "ndjson", "parquet"]
    assert read_all(out / "few").height == 3


def test_dask(tmp_path, monkeypatch):
    table, out = tmp_path / "rows.parquet", tmp_path / "out"
    ROWS.write_parquet(table, row_group_size=50)
    rows = pl.scan_parquet(table)
    monkeypatch.chdir(tmp_path)
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            rows.sink_parquet(pl.PartitionBy("out", key=[pl.col("region"), "id"]), engine=engine)
            named = pl.PartitionBy("named", key="region", file_path_provider=by_key)
            rows.sink_parquet(named, engine=engine)
        assert len(files(out)) == 300
        assert_frame_equal(read_all(out), ROWS, check_row_order=False)
        assert len(files("named")) == 6
        bad = rows.with_columns(
            pl.col("id").map_batches(lambda c: 1 // (c[-1] - 299) + c, return_dtype=pl.Int64)
        )
        with pytest.raises(Exception, match="by zero"):
            bad.sink_parquet(pl.PartitionBy("bad", key="region"), engine=engine)
        named = pl.PartitionBy("bad", key="region", file_path_provider=lambda _: io.BytesIO())
        with pytest.raises(NotImplementedError, match="let it give paths"):
            rows.sink_parquet(named, engine=engine)
        plain = pl.PartitionBy("plain", key="region", file_path_provider=by_key_alone)
        with pytest.warns(FallbackWarning, match="index_in_partition"):
            rows.sink_parquet(plain, engine=engine)
        assert files("plain") == ["east.parquet", "north.parquet", "south.parquet"]
        assert_frame_equal(read_all("plain"), ROWS, check_row_order=False)
        told = []
        with pytest.warns(FallbackWarning, match="callback"):
            rows.sink_parquet(pl.PartitionBy("told", key="region"), engine=engine,
                              sinked_paths_callback=lambda args: told.extend(args.paths))  # fmt: skip
        assert len(told) == 3
    assert sorted(os.listdir(tmp_path)) == ["named", "out", "plain", "rows.parquet", "told"]

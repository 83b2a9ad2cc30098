"""Sinks to ``pl.PartitionBy``: all ranks write, and the files are those that one process would name."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import threading
import traceback
import warnings
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from urllib.request import Request, urlopen

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine import partition_files, partition_sinks
from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.partition_sinks import folder_of_keys
from cudf_polars.engine.sinks import ByOneWriter, SinkTarget, partitioning_for_workers
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.moto_store import moto_store
from support.object_store import object_store
from support.ranks import run_ranks
from support.tables import ROWS

KINDS = ["parquet", "ipc", "csv", "ndjson"]
STRANGE = ["a b", "100%", "é", None, "x/y", "..", ".", "", "k=v", "a:b", "?#*+&", "\n", "'\"\\", "a b", None]
FRAME = pl.DataFrame({"k": STRANGE, "v": range(len(STRANGE))}, schema={"k": pl.String, "v": pl.Int64})
PARTS = [FRAME.head(9), FRAME.slice(9)]


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def folders(names):
    return {name.rpartition("/")[0] for name in names}


def read_all(folder):
    """Read all rows, with the keys that the files have."""
    return pl.concat([pl.read_parquet(Path(folder) / name) for name in files(folder)])


def sink(target, parts, extension="parquet", mode="raise", **options):
    """Let a rank for each of ``parts`` write."""

    def work(transport):
        opened = SinkTarget.open(target, extension, transport, mode, options)
        try:
            opened.write(parts[transport.rank].lazy(), **options)
            told = opened.commit(b"")
            assert opened.needs is None
            return told
        except BaseException:
            opened.discard()
            raise

    return local_transport.run_ranks(len(parts), work)


def check_nothing_hidden(folder):
    assert [path for path in Path(folder).rglob(".*") if path.name.endswith(".tmp")] == []


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


# -- what was there -----------------------------------------------------------------------------------------------


def test_files_of_other_names_stay(tmp_path):
    out = tmp_path / "out"
    for name in ("other.txt", "k=old/00000000.parquet", "v=1/00000000.parquet", "v=1/00000005.parquet"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("old")
    frame = pl.DataFrame({"v": [1, 2]})
    sink(pl.PartitionBy(out, key="v"), [frame, frame])
    old = [name for name in files(out) if (out / name).read_bytes() == b"old"]
    assert old == ["k=old/00000000.parquet", "other.txt", "v=1/00000005.parquet"]
    assert set(files(out)) - set(old) == {f"v={v}/0000000{i}.parquet" for v in (1, 2) for i in (0, 1)}
    check_nothing_hidden(tmp_path)


def test_when_moving_fails_all_is_as_before(tmp_path):
    out = tmp_path / "out"
    (out / "v=1").mkdir(parents=True)
    (out / "v=1" / "00000000.parquet").write_text("old")
    (out / "v=3" / "00000000.parquet").mkdir(parents=True)  # where a file is to be
    with pytest.raises(IsADirectoryError):
        sink(pl.PartitionBy(out, key="v"), [pl.DataFrame({"v": [1, 2]}), pl.DataFrame({"v": [3, 1]})])
    assert files(out) == ["v=1/00000000.parquet"]
    assert (out / "v=1" / "00000000.parquet").read_text() == "old"
    assert sorted(os.listdir(out)) == ["v=1", "v=3"]
    check_nothing_hidden(tmp_path)


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(FileExistsError, match="is a file"):
        sink(pl.PartitionBy(tmp_path / "out", key="v"), PARTS)
    assert files(tmp_path) == ["out"]


def test_a_folder_that_comes_meanwhile(tmp_path, monkeypatch):
    made = partition_files.make_folders

    def make(names, undo=None):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "other").touch()
        made(names, undo)

    monkeypatch.setattr(partition_files, "make_folders", make)
    sink(pl.PartitionBy(tmp_path / "out", key=pl.col("v") % 2), PARTS)
    assert len(files(tmp_path / "out")) == 5
    check_nothing_hidden(tmp_path)


def test_a_folder_whose_parent_is_not_ours(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    sink(pl.PartitionBy(tmp_path / "out", key=pl.col("v") % 2), PARTS)
    assert len(files(tmp_path / "out")) == 4
    check_nothing_hidden(tmp_path)


def test_partitions_on_another_file_system(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "v=0").symlink_to(other)
    own = Path.replace

    def replace(self, target):
        if self.parent.resolve() != other and Path(target).parent.resolve() == other:
            raise OSError(18, "Invalid cross-device link")
        return own(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    sink(pl.PartitionBy(tmp_path / "out", key=pl.col("v") % 2), PARTS)
    assert files(other) == ["00000000.parquet", "00000001.parquet"]
    check_nothing_hidden(tmp_path)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_leaves_nothing(failing, tmp_path):
    def fail(column):
        raise ValueError("of this rank")

    parts = [part.lazy() for part in PARTS]
    parts[failing] = parts[failing].with_columns(
        pl.when(pl.col("v") > 3).then(pl.col("v").map_batches(fail, return_dtype=pl.Int64)).otherwise("v")
    )
    for options in ({}, {"sinked_paths_callback": lambda _: None}):
        with pytest.raises(Exception, match="of this rank"):
            sink(pl.PartitionBy(tmp_path / "new" / "out", key="k"), parts, **options)
    assert list(tmp_path.iterdir()) == []


def test_late_threads_of_polars_get_no_file(tmp_path):
    held = []

    def work(transport):
        opened = SinkTarget.open(pl.PartitionBy(tmp_path / "out", key="k"), "parquet", transport, "raise", {})
        _, target, _ = opened._parts.prepare(FRAME.lazy(), {})
        held.append(target._pl_partition_by.file_path_provider)
        opened.discard()

    local_transport.run_ranks(1, work)
    with pytest.raises(RuntimeError, match="has ended"):
        held[0](pl.io.partition.FileProviderArgs(index_in_partition=0, partition_keys=FRAME.head(1)))
    assert list(tmp_path.iterdir()) == []


def test_no_file_stays_open(tmp_path):
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sink(pl.PartitionBy(tmp_path / "out", key="v"), [pl.DataFrame({"v": range(300)})] * 2)
        gc.collect()
    paths = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before]
    assert [path for path in paths if str(tmp_path) in path] == []
    assert len(files(tmp_path / "out")) == 600


@pytest.mark.parametrize("below", [False, True])
def test_a_folder_in_which_a_rank_works_stays_that_folder(below, tmp_path, monkeypatch):
    out = tmp_path / "out"
    sink(pl.PartitionBy(out, key="region"), [ROWS])
    monkeypatch.chdir(out / "region=east" if below else out)
    here, former = os.getcwd(), out.stat().st_ino
    sink(pl.PartitionBy(".." if below else ".", key="region"), [ROWS.head(9), ROWS.slice(9)])
    assert out.stat().st_ino == former
    assert os.getcwd() == here
    assert read_all(out).height == ROWS.height
    assert os.listdir(tmp_path) == ["out"]


def test_what_others_write_while_folders_change_places(tmp_path, monkeypatch):
    out = tmp_path / "out"
    frame = pl.DataFrame({"k": ["a", "b"], "v": [1, 2]})
    sink(pl.PartitionBy(out, key="k"), [frame])
    own = partition_files.exchange

    def exchange(one, other):
        for name in ("k=a/new", "k=a/00000000.parquet", "k=b/00000000.parquet"):
            (tmp_path / "other").write_text("somebody else's")
            (tmp_path / "other").replace(out / name)
        return own(one, other)

    monkeypatch.setattr(partition_files, "exchange", exchange)
    sink(pl.PartitionBy(out, key="k"), [frame.head(1)])
    assert files(out) == ["k=a/00000000.parquet", "k=a/new", "k=b/00000000.parquet"]
    assert pl.read_parquet(out / "k=a" / "00000000.parquet").height == 1  # ours came last
    assert (
        (out / "k=a" / "new").read_text()
        == (out / "k=b" / "00000000.parquet").read_text()
        == "somebody else's"
    )
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_that_cannot_be_read_keeps_its_files(tmp_path, monkeypatch):
    out = tmp_path / "out"
    (out / "closed").mkdir(parents=True)
    (out / "closed" / "file").write_text("the user's")
    own = os.scandir

    def scandir(path):
        if str(path).endswith("/closed"):
            raise PermissionError(13, "Permission denied", path)
        return own(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        sink(pl.PartitionBy(out, key="k"), PARTS)
    assert (out / "closed" / "file").read_text() == "the user's"
    assert pl.read_parquet(out / "**/*.parquet").height == FRAME.height
    check_nothing_hidden(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_folders_keep_their_owners(tmp_path):
    out = tmp_path / "out"
    sink(pl.PartitionBy(out, key="k"), PARTS)
    for folder, user in ((out, 1234), (out / "k=k%3Dv", 1235)):
        os.chown(folder, user, user)
    sink(pl.PartitionBy(out, key="k"), PARTS)
    assert (out.stat().st_uid, out.stat().st_gid) == (1234, 1234)
    assert (out / "k=k%3Dv").stat().st_uid == 1235


# -- names of the user ----------------------------------------------------------------------------------------------


def by_key(args):
    return f"{args.partition_keys.item()}/file{args.index_in_partition}"


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


def test_ranks_that_do_not_see_the_folder(tmp_path, monkeypatch):
    own = Path.is_dir

    def is_dir(self):
        return own(self) and not self.name.endswith(".tmp")

    monkeypatch.setattr(Path, "is_dir", is_dir)
    with pytest.raises(FileNotFoundError, match="does not see the folder"):
        sink(pl.PartitionBy(tmp_path / "out", key="k"), PARTS)
    assert list(tmp_path.iterdir()) == []


# -- object stores ------------------------------------------------------------------------------------------------


def of_store(store):
    """Return the objects of a sink: names without tokens, and their rows."""
    pattern = re.compile(r"(\d{5}-[0-9a-f]{8})\.[0-9a-f]{12}\.parquet")
    return {
        pattern.sub(r"\1", name.removeprefix("bucket/out/")): value for name, value in store.objects.items()
    }


def rows_of(objects):
    return pl.concat(pl.read_parquet(io.BytesIO(value)) for value in objects.values())


def test_ranks_write_to_a_store():
    pytest.importorskip("obstore")
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        target = pl.PartitionBy("s3://bucket/out/", key="k")
        sink(target, PARTS, **options)
        found = of_store(store)
        assert_frame_equal(rows_of(found), FRAME, check_row_order=False)
        assert folders(found) == {folder_of_keys(row) for row in FRAME.select("k").iter_slices(1)}
        assert {name.rpartition("/")[2] for name in found} == {"00000-00000000", "00001-00000000"}

        # The next sink replaces what has its names; a file of Polars' name is one of them, others stay.
        first = set(store.objects)
        for name in ("k=a%20b/00000000.parquet", "k=a%20b/00000009.parquet", "k=old/00000000.parquet", "x"):
            store.objects[f"bucket/out/{name}"] = b"old"
        told = []
        sink(target, PARTS, **options, sinked_paths_callback=lambda args: told.extend(args.paths))
        old = {name for name, value in store.objects.items() if value == b"old"}
        assert old == {f"bucket/out/{n}" for n in ("k=a%20b/00000009.parquet", "k=old/00000000.parquet", "x")}
        for name in old:
            del store.objects[name]
        assert first & set(store.objects) == set()
        assert sorted(file.path for file in told) == sorted(f"s3://{name}" for name in store.objects)
        assert_frame_equal(rows_of(of_store(store)), FRAME, check_row_order=False)

        # One that fails leaves those that were there.
        before = dict(store.objects)

        def fail(column):
            raise ValueError("of this rank")

        bad = FRAME.lazy().with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Int64))
        with pytest.raises(Exception, match="of this rank"):
            sink(target, [PARTS[0], bad], **options)
        assert store.objects == before


def test_what_was_not_written_keeps_nothing_in_a_store(monkeypatch):
    obstore = pytest.importorskip("obstore")
    own = obstore.delete

    def delete(store, paths):
        # As stores do that delete one object at a time.
        for path in paths:
            if f"bucket/{path}" not in memory.objects:
                raise FileNotFoundError(path)
            own(store, path)

    def work(transport):
        options = {"storage_options": memory.storage_options}
        opened = SinkTarget.open(
            pl.PartitionBy("s3://bucket/out", key="k"), "parquet", transport, "raise", options
        )
        _, target, _ = opened._parts.prepare(FRAME.lazy(), options)
        for number in range(2):
            keys = FRAME.select("k").slice(number, 1)
            args = pl.io.partition.FileProviderArgs(index_in_partition=0, partition_keys=keys)
            name = target._pl_partition_by.file_path_provider(args)
            if number:  # the first one was only announced
                memory.objects[f"bucket/out/{name}"] = b"rows"
        opened.discard()

    monkeypatch.setattr(obstore, "delete", delete)
    with object_store() as memory:
        local_transport.run_ranks(2, work)
        assert memory.objects == {}


def test_no_rows_in_a_store():
    pytest.importorskip("obstore")
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        target = pl.PartitionBy("s3://bucket/out", max_rows_per_file=10)
        sink(target, [FRAME.clear(), FRAME], **options)
        assert sorted(of_store(store)) == ["00001-00000000", "00001-00000001"]
        sink(pl.PartitionBy("s3://bucket/no", max_rows_per_file=10), [FRAME.clear()] * 2, **options)
        assert len(store.objects) == 3


def test_what_one_rank_writes_in_a_store(monkeypatch):
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        monkeypatch.setattr(partition_sinks.importlib.util, "find_spec", lambda _: None)
        with pytest.warns(FallbackWarning, match="obstore"):
            sink(pl.PartitionBy("s3://bucket/out", key="k"), PARTS, mode="warn", **options)
        assert_frame_equal(rows_of(store.objects), FRAME, check_row_order=False)


@pytest.mark.parametrize("nranks", [1, 2])
def test_the_users_names_in_a_store(nranks):
    pytest.importorskip("obstore")
    frame = pl.DataFrame({"v": [1, 2, 1], "w": range(3)})
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        store.objects["bucket/out/old"] = store.objects["bucket/out/1/file0"] = b"old"
        for names in (by_key, lambda args: f"s3://bucket/out/{by_key(args)}"):
            target = pl.PartitionBy("s3://bucket/out/", key="v", file_path_provider=names)
            sink(target, [frame] * nranks, **options)
            expected = {f"bucket/out/{v}/file{rank}" for v in (1, 2) for rank in range(nranks)}
            assert store.objects.keys() == expected | {"bucket/out/old"}
            assert store.objects.pop("bucket/out/1/file0") != b"old"

        told, objects = [], {}
        target = pl.PartitionBy(
            "s3://bucket/told", max_rows_per_file=2, file_path_provider=lambda a: str(a.index_in_partition)
        )
        sink(target, [frame] * nranks, sinked_paths_callback=lambda args: told.extend(args.paths), **options)
        names = [f"s3://bucket/told/{number}" for number in range(2 * nranks)]
        assert sorted((file.path, file.num_rows) for file in told) == [
            (name, 1 + (number % 2 == 0)) for number, name in enumerate(names)
        ]

        def given(args):
            return objects.setdefault((args.partition_keys.item(), args.index_in_partition), io.BytesIO())

        before = dict(store.objects)
        sink(
            pl.PartitionBy("s3://bucket/here", key="v", file_path_provider=given), [frame] * nranks, **options
        )
        assert store.objects == before
        read = pl.concat(pl.read_parquet(io.BytesIO(file.getvalue())) for file in objects.values())
        assert_frame_equal(read, pl.concat([frame] * nranks), check_row_order=False)


def test_a_failure_while_files_get_the_users_names(monkeypatch):
    obstore = pytest.importorskip("obstore")
    frame = pl.DataFrame({"v": [1, 2, 1], "w": range(3)})

    def refuse(*_):
        raise OSError("https://secret@host")

    monkeypatch.setattr(obstore, "copy", refuse)
    with object_store() as store:
        target = pl.PartitionBy("s3://bucket/out/", key="v", file_path_provider=by_key)
        with pytest.raises(OSError, match="cannot be copied: OSError") as raised:
            sink(target, [frame] * 2, storage_options=store.storage_options)
        assert "secret" not in "".join(traceback.format_exception(raised.value))
        assert store.objects == {}


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

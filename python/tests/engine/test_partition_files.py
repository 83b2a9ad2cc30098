"""Files of a sink to ``pl.PartitionBy`` come to their places in a folder, beside what was there."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport

from cudf_polars.engine import partition_files
from cudf_polars.engine.sinks import SinkTarget
from support.partitions import FRAME, PARTS, check_nothing_hidden, files, read_all, sink
from support.tables import ROWS


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


def test_ranks_that_do_not_see_the_folder(tmp_path, monkeypatch):
    own = Path.is_dir

    def is_dir(self):
        return own(self) and not self.name.endswith(".tmp")

    monkeypatch.setattr(Path, "is_dir", is_dir)
    with pytest.raises(FileNotFoundError, match="does not see the folder"):
        sink(pl.PartitionBy(tmp_path / "out", key="k"), PARTS)
    assert list(tmp_path.iterdir()) == []

"""Sinks to a folder: parts of all ranks take the place of the former ones as a whole, and nothing else goes."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine import folder_sinks
from cudf_polars.engine.sinks import SinkTarget
from support.sinks import opened_on_ranks, write_and_commit
from support.tables import ROWS


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Be in a folder of which a test sees what was written by mistake."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_no_rank_returns_before_the_former_parts_are_gone(tmp_path, monkeypatch):
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)
    own = Path.unlink

    def unlink(self, **options):
        gone.wait(0.5)  # who does not wait has looked by now
        own(self, **options)

    def work(*given):
        write_and_commit(*given)
        found.append(sorted(os.listdir(out)))
        gone.set()

    found, gone = [], threading.Event()
    monkeypatch.setattr(Path, "unlink", unlink)
    opened_on_ranks(2, work, out)
    assert found == [["part.00000.parquet", "part.00001.parquet"]] * 2


def test_a_rank_that_fails_when_all_have_written_leaves_no_mixture(tmp_path):
    out = tmp_path / "out"
    opened_on_ranks(2, write_and_commit, out)
    former = (out / "part.00000.parquet").stat().st_ino
    new = ROWS.with_columns(pl.col("id") + 1000)

    def work(sink, transport, options):
        sink.write(new[transport.rank :: 2].lazy())
        if transport.rank == 1:
            own = transport.allgather_bytes

            def fail_next(value, *, op):
                told = own(value, op=op)
                for _ in range(100):  # the other rank comes as far as it can without this one
                    if (out / "part.00000.parquet").stat().st_ino != former:
                        break
                    time.sleep(0.01)
                raise ValueError(f"after {told}")

            transport.allgather_bytes = fail_next
        try:
            sink.commit(b"")
        finally:
            sink.discard()

    with pytest.raises(ValueError, match="after"):
        opened_on_ranks(2, work, out)
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert_frame_equal(pl.read_parquet(out).sort("id"), new)


def test_ranks_with_file_systems_of_their_own(tmp_path):
    opened_on_ranks(2, write_and_commit, lambda rank: tmp_path / f"out{rank}")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("out*/*")) == [
        "out0/part.00000.parquet",
        "out1/part.00001.parquet",
    ]


def test_hosts_with_file_systems_of_their_own_and_two_ranks_each(tmp_path):
    for _ in range(2):  # the second in the place of the first
        opened_on_ranks(4, write_and_commit, lambda rank: tmp_path / f"host{rank // 2}")
        assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*part*")) == [
            f"host{rank // 2}/part.{rank:05d}.parquet" for rank in range(4)
        ]
        assert pl.read_parquet(tmp_path / "host*/*.parquet").height == ROWS.height
        assert sorted(os.listdir(tmp_path)) == ["here", "host0", "host1"]


def test_targets_of_ranks_in_a_folder_that_is_not_there(tmp_path):
    opened_on_ranks(2, write_and_commit, lambda rank: tmp_path / f"new/{rank}/out")
    assert os.listdir(tmp_path / "new/0/out") == ["part.00000.parquet"]
    assert os.listdir(tmp_path / "new/1/out") == ["part.00001.parquet"]


def test_folders_above_the_target_go_when_the_sink_fails(tmp_path, empty_folder):
    def work(sink, transport, options):
        with pytest.raises(pl.exceptions.InvalidOperationError):
            sink.write(pl.LazyFrame({"a": ["x"]}).select(pl.col("a").cast(pl.Int64)))
        sink.discard()

    opened_on_ranks(2, work, tmp_path / "new/folder/out")
    assert os.listdir(tmp_path) == [empty_folder.name]


def test_a_rank_that_fails_first_takes_no_folder_from_the_others(tmp_path, monkeypatch):
    own = Path.mkdir
    failed = threading.Event()

    def mkdir(self, *args, **options):
        own(self, *args, **options)
        if self.name.endswith(".tmp") and not failed.is_set():
            failed.set()
            with contextlib.suppress(OSError):
                self.rmdir()  # as another rank does that has failed

    monkeypatch.setattr(Path, "mkdir", mkdir)
    opened_on_ranks(2, write_and_commit, tmp_path / "out")
    assert failed.is_set()
    assert pl.read_parquet(tmp_path / "out").height == ROWS.height


def without_exchange(monkeypatch):
    monkeypatch.setattr(folder_sinks, "exchange", lambda one, other: False)


@pytest.mark.parametrize("in_one_step", [True, False])
def test_what_comes_into_the_folder_meanwhile_stays(in_one_step, tmp_path, monkeypatch):
    if not in_one_step:
        without_exchange(monkeypatch)
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)

    def work(*given):
        (out / "notes").write_text("the user's")
        (out / "folder").mkdir(exist_ok=True)
        (out / "folder" / "more").write_text("the user's")
        write_and_commit(*given)

    # The sinks have looked at the folder when they are made.
    def run(transport):
        sink = SinkTarget.open(out, "parquet", transport, "silent", {})
        transport.allgather_bytes(b"", op=0)
        work(sink, transport, {})

    local_transport.run_ranks(2, run)
    assert sorted(os.listdir(out)) == ["folder", "notes", "part.00000.parquet", "part.00001.parquet"]
    assert os.listdir(out / "folder") == ["more"]


def test_a_folder_in_which_a_rank_works_stays_that_folder(tmp_path, monkeypatch):
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)
    former = out.stat().st_ino
    monkeypatch.chdir(out)
    opened_on_ranks(2, write_and_commit, ".")
    assert out.stat().st_ino == former
    assert os.getcwd() == str(out)
    assert sorted(os.listdir(".")) == ["part.00000.parquet", "part.00001.parquet"]
    assert sorted(os.listdir(tmp_path)) == ["here", "out"]


def test_a_function_of_the_user_that_changes_the_working_folder(tmp_path, empty_folder):
    def work(sink, transport, options):
        os.chdir(tmp_path)
        write_and_commit(sink, transport, options)

    def run(transport):
        sink = SinkTarget.open("out", "parquet", transport, "silent", {})
        transport.allgather_bytes(b"", op=0)
        work(sink, transport, {})

    local_transport.run_ranks(2, run)
    assert os.listdir(empty_folder) == ["out"]
    assert sorted(os.listdir("here/out")) == ["part.00000.parquet", "part.00001.parquet"]


def test_a_rank_for_which_the_target_is_a_mount_point(tmp_path, monkeypatch):
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)
    former = out.stat().st_ino
    first = threading.Lock()

    def beside(where, token):
        # Of one rank only: for the other, which exports it, say, it is a folder.
        return where / token if first.acquire(blocking=False) else where.parent / token

    monkeypatch.setattr(folder_sinks, "hidden_beside", beside)
    opened_on_ranks(2, write_and_commit, out)
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert pl.read_parquet(out).height == ROWS.height
    assert out.stat().st_ino == former
    assert sorted(os.listdir(tmp_path)) == ["here", "out"]


def test_parts_go_to_another_file_system(tmp_path, monkeypatch):
    out = tmp_path / "out"
    opened_on_ranks(2, write_and_commit, out)
    own = Path.replace

    def replace(self, target):
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "another file system")
        return own(self, target)

    without_exchange(monkeypatch)  # as with a folder of the same device that is mounted there
    monkeypatch.setattr(Path, "replace", replace)
    opened_on_ranks(2, write_and_commit, out)
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert pl.read_parquet(out).height == ROWS.height
    assert sorted(os.listdir(tmp_path)) == ["here", "out"]


def test_the_new_folder_is_like_the_old_one(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o2750)
    group = next((group for group in os.getgroups() if group != os.getgid()), os.getgid())
    if os.getuid() == 0:
        group = 4321
        os.chown(out, 1234, group)
    else:
        os.chown(out, -1, group)
    os.utime(out, (1, 1))
    former = out.stat()
    opened_on_ranks(2, write_and_commit, out)
    new = out.stat()
    assert (new.st_mode, new.st_uid, new.st_gid) == (former.st_mode, former.st_uid, former.st_gid)
    assert new.st_mtime > 1  # it has other files
    assert {path.stat().st_gid for path in out.iterdir()} == {group}


def test_a_folder_of_somebody_else_stays_that_folder(tmp_path, monkeypatch):
    out = tmp_path / "out"
    opened_on_ranks(3, write_and_commit, out)
    former = out.stat().st_ino
    monkeypatch.setattr(folder_sinks, "copy_form", lambda folder, copy: False)
    opened_on_ranks(2, write_and_commit, out)
    assert out.stat().st_ino == former
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert sorted(os.listdir(tmp_path)) == ["here", "out"]


def test_what_a_killed_sink_left_goes_with_the_next(tmp_path):
    out = tmp_path / "out"
    opened_on_ranks(2, write_and_commit, out)
    (out / ".part.00001.parquet.99.tmp").write_text("half a file")
    opened_on_ranks(2, write_and_commit, out)
    assert sorted(os.listdir(out)) == ["part.00000.parquet", "part.00001.parquet"]
    assert pl.scan_parquet(out).collect().height == ROWS.height


def test_the_folder_of_a_failed_sink_goes_with_the_last_file(tmp_path):
    def work(transport):
        for turn in range(2):
            if transport.rank == turn:  # so the first one makes the folder
                sink = SinkTarget.open(tmp_path / "out", "parquet", transport, "raise", {})
            transport.allgather_bytes(b"", op=turn)
        sink.write(ROWS.lazy())
        transport.allgather_bytes(b"both have a file", op=8)
        for turn in range(2):
            if transport.rank == turn:  # and it is the first to remove its file
                sink.discard()
            transport.allgather_bytes(b"", op=9 + turn)

    local_transport.run_ranks(2, work)
    assert not (tmp_path / "out").exists()


def test_new_parts_are_not_truncated(tmp_path, monkeypatch):
    """Truncated, they would be written to the disk when they are closed, on ext4."""
    own, opened = os.open, []

    def open_part(path, flags, *args, **options):
        if str(path).endswith(".csv"):
            opened.append(flags)
        return own(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", open_part)
    monkeypatch.setattr(os, "ftruncate", lambda *given: pytest.fail("a new part is truncated"))
    opened_on_ranks(2, write_and_commit, tmp_path / "out", "csv")
    assert opened
    assert not any(flags & os.O_TRUNC for flags in opened)


def test_what_a_process_of_this_number_left_is_overwritten(tmp_path):
    """A file that is alone is written under a name with the number of its process, which another one may have had."""
    (tmp_path / f".out.csv.{os.getpid()}.tmp").write_bytes(b"left\n" * 1_000)

    def work(transport):
        sink = SinkTarget.open(tmp_path / "out.csv", "csv", transport, "silent", {}, to_directory=False)
        write_and_commit(sink, transport, {})

    local_transport.run_ranks(1, work)
    assert_frame_equal(pl.read_csv(tmp_path / "out.csv", schema=ROWS.schema), ROWS)
    assert sorted(os.listdir(tmp_path)) == ["here", "out.csv"]

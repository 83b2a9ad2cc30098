"""SIGKILL at every change that a sink makes leaves the old output or the new one, of every kind of sink.

One or two ranks are threads of a process that is killed. In a store of objects, those of several are the mix that is
documented, each whole. What a rank that lives does when another one is killed is in ``test_killed_sinks``.

Each sink is killed at four changes; ``make test-kills`` kills it at forty.
"""

from __future__ import annotations

import io
import os
import shutil
from collections import deque

import polars as pl
import pytest

from support.killed_processes import trials as start_trials
from support.moto_store import moto_process
from support.object_store import object_store
from support.sinks_to_kill import NEW, OLD
from support.tables import catalog_of, remote_catalog_of

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("moto")
pytest.importorskip("obstore")
pytest.importorskip("pyiceberg")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

MOST = int(os.environ.get("RIVERRUN_TEST_KILLS", "4"))
SECONDS = 120 + 10 * MOST
ROWS = {"old": sorted(OLD.rows()), "new": sorted(NEW.rows())}
KEPT = [row for row in OLD.rows() if row[0] == 3]
"""Of partitions that the new rows do not have, the files stay, as with Polars."""


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    with start_trials("support.sinks_to_kill", tmp_path_factory.mktemp("library")) as trials:
        yield trials


def moments(changes, most=MOST):
    """Return changes at which a process is killed: the last ones all, for there the new output takes its place."""
    early, late = range(max(0, changes - most // 2)), range(max(0, changes - most // 2), changes)
    return [*early[:: max(1, -(-2 * len(early) // most))], *late]


class Kills:
    """Kills a sink at each of some changes, until most of them have met one.

    Ranks do not always make the same number of changes: a process that has made fewer than expected, and so was not
    killed, is tried again with an earlier one.
    """

    def __init__(self, changes, most=MOST):
        self._left = deque(moments(changes, most))
        self._wanted, self._tries = len(self._left), 2 * len(self._left)
        self.killed, self.ends = 0, []

    def __iter__(self):
        while self._left:
            yield self._left.popleft()

    def ended(self, moment, ended, is_new):
        """Take note of a process and of whether its sink had the new rows then."""
        self.killed += ended.was_killed
        self.ends.append((moment, is_new))
        if not ended.was_killed and len(self.ends) < self._tries:
            self._left.append(max(0, min(moment, ended.changes) - 1))

    def check(self):
        """Check that processes were killed, and that the first one left the old rows."""
        assert self.killed > self._wanted // 2
        assert not self.ends[0][1]

    def check_last(self):
        """Check that the process that was killed at the latest change left the new rows."""
        assert max(self.ends)[1]


def found(kind, target):
    """Return the rows that a reader finds."""
    if kind == "file":
        return sorted(pl.read_parquet(f"{target}.parquet").rows())
    if "delta" in kind:
        return sorted(pl.read_delta(str(target)).rows())
    if "iceberg" in kind:
        return sorted(pl.scan_iceberg(catalog_of(target.parent).load_table("db.t")).collect().rows())
    files = pl.scan_parquet(target / "**/*.parquet", hive_partitioning=False)
    return sorted(files.select("k", "v").collect().rows())


def make(kind, folder):
    """Make what a sink needs; returns whether it is then to write the old rows itself."""
    if "iceberg" in kind:
        catalog = catalog_of(folder)
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", schema=OLD.to_arrow().schema)
        table.append(OLD.to_arrow())
        catalog.close()
    elif "delta" in kind:
        OLD.write_delta(folder / "out")
    return "iceberg" not in kind and "delta" not in kind


def after(kind, exists):
    """Return the rows of a sink that has ended."""
    if kind.startswith("append"):
        return sorted(ROWS["old"] + ROWS["new"])
    return sorted(ROWS["new"] + (KEPT if exists and "partitions" in kind else []))


LOCAL = [
    "file",
    "parts",
    "partitions",
    "named partitions",
    "append to delta",
    "overwrite delta",
    "append to iceberg",
    "overwrite iceberg",
]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("kind", LOCAL)
def test_on_a_file_system(kind, nranks, trials, tmp_path):
    if kind == "file" and nranks > 1:
        pytest.skip("several ranks write no single file")
    folder, before = tmp_path / "ranks", tmp_path / "before"
    folder.mkdir()
    if make(kind, folder):
        trials.run("sink", folder, kind, nranks, "old", "", {})
    folder.rename(before)

    def run(kill_at=-1):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before, folder, symlinks=True)  # a catalog has the names of its files
        return trials.run("sink", folder, kind, nranks, "new", "", {}, kill_at=kill_at)

    ended = run()
    new = after(kind, exists=True)
    assert found(kind, folder / "out") == new
    kills = Kills(ended.changes, max(6, MOST // 2) if "iceberg" in kind else MOST)
    for moment in kills:
        ended = run(moment)
        rows = found(kind, folder / "out")
        assert rows in (ROWS["old"], new), (moment, rows)
        assert ended.was_killed or rows == new
        kills.ended(moment, ended, rows == new)
        if moment % 8 == 0 and not (rows == new and kind.startswith("append")):  # and the next one works
            trials.run("sink", folder, kind, nranks, "new", "", {})
            assert found(kind, folder / "out") == new
    kills.check()
    if kind in ("parts", "partitions", "named partitions"):  # where old files are removed then
        kills.check_last()


REMOTE = ["file", "parts", "partitions", "named partitions", "append to delta", "overwrite delta"]


def in_store(store, kind):
    """Return the rows that a reader finds in a store."""
    if "delta" in kind:
        return sorted(pl.read_delta("s3://bucket/out", storage_options=store.storage_options).rows())
    contents = [io.BytesIO(content) for _, content in sorted(store.objects.items())]
    return sorted(pl.concat(pl.read_parquet(content).select("k", "v") for content in contents).rows())


def is_right(kind, rows, mixed):
    """Whether a reader may find these rows."""
    new = after(kind, exists=True)
    if rows in (ROWS["old"], new):
        return True
    return (
        mixed
        and set(rows) <= {*ROWS["old"], *new}
        and (set(rows) >= set(ROWS["old"]) or set(rows) >= set(new))
    )


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("kind", REMOTE)
def test_in_an_object_store(kind, nranks, trials, tmp_path):
    if kind == "file" and nranks > 1:
        pytest.skip("several ranks write no single file")
    with object_store() as store:

        def write(which, kill_at=-1):
            arguments = kind, nranks, which, "s3://bucket", options
            return trials.run("sink", tmp_path, *arguments, kill_at=kill_at, store=store)

        options = (
            {**store.storage_options, "conditional_put": "etag"} if "delta" in kind else store.storage_options
        )

        if "delta" in kind:
            OLD.write_delta("s3://bucket/out", storage_options=options)
        else:
            write("old")
        before = dict(store.objects)

        def run(kill_at=-1):
            store.objects.clear()
            store.objects.update(before)
            return write("new", kill_at)

        kills = Kills(run().changes)
        new = after(kind, exists=True)
        assert in_store(store, kind) == new
        for moment in kills:
            ended = run(moment)
            rows = in_store(store, kind)
            assert is_right(kind, rows, mixed=kind in ("parts", "partitions", "named partitions")), (
                moment,
                rows,
            )
            assert ended.was_killed or rows == new
            kills.ended(moment, ended, rows == new)
            if moment % 8 == 0 and not (rows == new and kind.startswith("append")):  # and the next one works
                write("new")
                if kind != "named partitions":
                    assert in_store(store, kind) == new
        kills.check()
        kills.check_last()


@pytest.fixture(scope="module")
def far():
    with moto_process() as store:
        yield store


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("mode", ["append to", "overwrite"])
def test_iceberg_in_an_object_store(mode, nranks, trials, far, tmp_path):
    """At changes of the catalog, which decides, and at some before."""
    kind, options = f"{mode} iceberg", far.storage_options
    folder, before = tmp_path / "ranks", tmp_path / "before"
    folder.mkdir()
    place = f"s3://bucket/{tmp_path.name}"
    catalog = remote_catalog_of(folder, f"{place}/out/{folder.name}", options)
    catalog.create_namespace("db")
    catalog.create_table("db.t", schema=OLD.to_arrow().schema).append(OLD.to_arrow())
    catalog.close()
    shutil.copytree(folder, before)

    def run(kill_at=-1):
        # The objects of other trials stay: the catalog says which are the table's.
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        ended = trials.run("sink", folder, kind, nranks, "new", place, options, kill_at=kill_at)
        table = remote_catalog_of(folder, f"{place}/out/{folder.name}", options).load_table("db.t")
        rows = pl.scan_iceberg(table, storage_options=options).collect()
        return sorted(rows.rows()), ended

    new = after(kind, exists=True)
    rows, ended = run()
    assert rows == new
    kills = Kills(ended.changes, max(4, MOST // 2))
    for moment in kills:
        rows, ended = run(moment)
        assert rows in (ROWS["old"], new), (moment, rows)
        assert ended.was_killed or rows == new
        kills.ended(moment, ended, rows == new)
    kills.check()

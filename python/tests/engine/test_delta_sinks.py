"""``sink_delta`` by all ranks: files of each, one commit, and what deltalake itself would have written."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import warnings
from datetime import date, datetime
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine import delta_sinks
from cudf_polars.engine.cluster import ClusterEngine
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.delta_sinks import DeltaPlan, DeltaSink, DeltaWrite, agree_on_delta, plan_delta
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.delta import write_by_ranks
from support.ranks import run_ranks
from support.tables import ROWS

deltalake = pytest.importorskip("deltalake")

FRAME = pl.DataFrame(
    {
        "k": ["a b", "100%", "é", None, "x/y", "", "k=v", "a:b", "?#*", "a b"],
        "i": range(10),
        "u": pl.Series(range(10), dtype=pl.UInt8),
        "f": [None, 1.5, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        "d": [date(2020, 1, 1 + n) for n in range(10)],
        "t": [datetime(2020, 1, 1, n) for n in range(10)],
        "s": [{"a": n, "b": "x"} for n in range(10)],
        "l": [[n] for n in range(10)],
    }
)
STORED = FRAME.cast({"u": pl.Int8})  # Delta has no unsigned numbers
PARTS = [FRAME.head(6), FRAME.slice(6)]


def sink(target, parts, mode="error", **options):
    """Let a rank for each of ``parts`` write."""
    write_by_ranks(DeltaWrite(Path(target), mode, options), parts)


def read(target, **options):
    return pl.read_delta(str(target), **options)


def facts(target):
    """What a table says of its files, but for their names, sizes and times."""
    table = deltalake.DeltaTable(str(target))
    rows = pl.DataFrame(table.get_add_actions(flatten=True))
    return rows.drop("path", "size_bytes", "modification_time")


def modes(target):
    return [
        entry["operationParameters"]["mode"] for entry in reversed(deltalake.DeltaTable(target).history())
    ]


def parquet_files(folder):
    return sorted(path for path in Path(folder).rglob("*.parquet"))


@pytest.mark.parametrize("keys", [[], ["k"], ["d", "k"], ["u"]], ids=str)
def test_what_deltalake_writes(keys, tmp_path):
    options = {"partition_by": keys} if keys else {}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for mode in ("error", "append", "overwrite", "append"):
        sink(ours, PARTS, mode, **options)
        FRAME.lazy().sink_delta(theirs, mode=mode, delta_write_options=options)
        assert_frame_equal(read(ours), read(theirs), check_row_order=False)
    one, other = deltalake.DeltaTable(ours), deltalake.DeltaTable(theirs)
    assert modes(ours) == modes(theirs) == ["ErrorIfExists", "Append", "Overwrite", "Append"]
    assert one.schema() == other.schema()
    assert one.protocol() == other.protocol()
    assert one.metadata().partition_columns == other.metadata().partition_columns == keys
    assert facts(ours)["num_records"].sum() == facts(theirs)["num_records"].sum() == 20
    assert sorted(facts(ours).columns) == sorted(facts(theirs).columns)
    assert read(ours, version=1).height == 20
    query = pl.scan_delta(str(ours)).filter(pl.col("i") == 7)
    assert query.collect().height == 2
    assert sorted(os.listdir(tmp_path)) == ["ours", "theirs"]


def test_statistics_are_those_of_the_files(tmp_path):
    sink(tmp_path / "two", PARTS)
    PARTS[0].lazy().sink_delta(tmp_path / "first")
    PARTS[1].lazy().sink_delta(tmp_path / "second")
    theirs = pl.concat([facts(tmp_path / "first"), facts(tmp_path / "second")], how="diagonal")
    found = facts(tmp_path / "two")
    assert_frame_equal(found, theirs, check_row_order=False, check_column_order=False)
    table = deltalake.DeltaTable(tmp_path / "two")
    sizes = dict(pl.DataFrame(table.get_add_actions(flatten=True)).select("path", "size_bytes").rows())
    assert sizes == {path.name: path.stat().st_size for path in parquet_files(tmp_path / "two")}


def test_ranks_without_rows(tmp_path):
    none = FRAME.clear()
    sink(tmp_path / "some", [none, FRAME, none], partition_by="k")
    assert_frame_equal(read(tmp_path / "some"), STORED, check_row_order=False)
    for mode in ("error", "append", "overwrite"):
        sink(tmp_path / "none", [none, none], mode)
        assert read(tmp_path / "none").height == 0
    assert modes(tmp_path / "none") == ["ErrorIfExists", "Append", "Overwrite"]
    sink(tmp_path / "some", [none, none], "overwrite")
    assert read(tmp_path / "some").height == 0


def test_properties_of_the_table_and_the_commit(tmp_path):
    target = tmp_path / "table"
    properties = {"delta.dataSkippingNumIndexedCols": "1", "delta.logRetentionDuration": "interval 9 days"}
    sink(
        target,
        PARTS,
        name="a name",
        description="what it is",
        configuration=properties,
        target_file_size=1 << 20,
    )
    table = deltalake.DeltaTable(target)
    assert (table.metadata().name, table.metadata().description) == ("a name", "what it is")
    assert table.metadata().configuration == properties
    said = deltalake.CommitProperties(custom_metadata={"who": "me"})
    sink(target, PARTS, "append", commit_properties=said)
    assert deltalake.DeltaTable(target).history(1)[0]["who"] == "me"
    assert [name for name in facts(target).columns if name.startswith("min.")] == ["min.k"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_rank_that_fails_leaves_nothing(exists, tmp_path):
    target = tmp_path / "table"
    if exists:
        sink(target, PARTS)
    before = sorted(tmp_path.rglob("*"))

    def fail(column):
        raise ValueError("of this rank")

    bad = PARTS[1].lazy().with_columns(pl.col("i").map_batches(fail, return_dtype=pl.Int64))
    with pytest.raises(Exception, match="of this rank"):
        sink(target, [PARTS[0], bad], "append")
    assert sorted(tmp_path.rglob("*")) == before
    # What deltalake refuses on every rank.
    if exists:
        other = pl.DataFrame({"k": [[1]]})
        with pytest.raises(Exception, match=r"(?i)schema|cast"):
            sink(target, [other, other], "append")
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_commit_that_fails_leaves_nothing(mode, tmp_path, monkeypatch):
    target = tmp_path / "table"
    if mode == "append":
        sink(target, PARTS, partition_by=["k"])
    before = sorted(tmp_path.rglob("*"))

    def commit(*_):
        raise OSError("no commit")

    monkeypatch.setattr(DeltaSink, "_commit_actions", commit)
    with pytest.raises(OSError, match="no commit"):
        sink(target, PARTS, mode, partition_by=["k"])
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_committed_stays(tmp_path, monkeypatch):
    own = DeltaSink._commit_actions

    def commit(self, actions):
        own(self, actions)
        raise OSError("after the commit")

    monkeypatch.setattr(DeltaSink, "_commit_actions", commit)
    with pytest.raises(OSError, match="after the commit"):
        sink(tmp_path / "table", PARTS)
    assert_frame_equal(read(tmp_path / "table"), STORED, check_row_order=False)
    assert os.listdir(tmp_path) == ["table"]


def test_a_table_that_changes_meanwhile(tmp_path, monkeypatch):
    target = tmp_path / "table"
    sink(target, PARTS)
    plan = plan_delta(DeltaWrite(target, "append", {}))
    FRAME.lazy().sink_delta(target, mode="append")
    monkeypatch.setattr(delta_sinks, "plan_delta", lambda _: plan)
    sink(target, PARTS, "append")  # appending meets nobody
    assert read(target).height == 30
    assert modes(target) == ["ErrorIfExists", "Append", "Append"]


def test_a_new_table_that_others_make_is_ignored(tmp_path, monkeypatch):
    sink(tmp_path / "table", PARTS, "ignore", partition_by=["k"])
    assert_frame_equal(read(tmp_path / "table"), STORED, check_row_order=False)
    assert modes(tmp_path / "table") == ["Ignore"]
    own = DeltaSink._commit_actions

    def commit(self, actions):
        FRAME.head(1).lazy().sink_delta(tmp_path / "other")
        own(self, actions)

    monkeypatch.setattr(DeltaSink, "_commit_actions", commit)
    sink(tmp_path / "other", PARTS, "ignore", partition_by=["k"])
    assert read(tmp_path / "other").height == 1
    assert len(parquet_files(tmp_path / "other")) == 1
    assert sorted(os.listdir(tmp_path)) == ["other", "table"]


def test_files_that_come_after_a_failure(tmp_path):
    """As threads that write for a query do, which go on when it has failed."""
    late = []

    class LateSink(DeltaSink):
        def write(self, rows, *_):
            if self._transport.rank == 1:
                folder = self._own

                def write_late():
                    for number in range(4):
                        time.sleep(0.08)
                        folder.mkdir(parents=True, exist_ok=True)
                        (folder / f"{number}.parquet").write_bytes(b"late")

                late.append(threading.Thread(target=write_late))
                late[0].start()
                raise ValueError("of this rank")
            super().write(rows)

    def work(transport):
        plan = agree_on_delta(DeltaWrite(tmp_path / "table", "append", {}), transport, op=9)
        opened = LateSink(plan, transport, 10)
        try:
            opened.write(PARTS[transport.rank].lazy())
            opened.commit(b"")
        finally:
            opened.discard()

    with pytest.raises(ValueError, match="of this rank"):
        local_transport.run_ranks(2, work)
    late[0].join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "merge"}, "mode='merge'"),
        ({"delta_write_options": {"schema_mode": "overwrite"}}, "schema_mode"),
        ({"delta_write_options": {"predicate": "i = 1"}}, "predicate"),
        ({"target": "http://host/table"}, "another store"),
        ({"storage_options": {"a": "b"}}, "another store"),
        ({"target": io} if (io := object()) else {}, "DeltaTable"),
    ],
)
def test_calls_of_one_writer(arguments, says):
    assert says in DeltaWrite.of({"target": "table", **arguments})


def test_tables_of_one_writer(tmp_path):
    def why(mode="append", **options):
        return plan_delta(DeltaWrite(tmp_path / "table", mode, options))

    def table(**options):
        shutil.rmtree(tmp_path / "table", ignore_errors=True)
        FRAME.select("k", "i").write_delta(tmp_path / "table", delta_write_options=options)
        return deltalake.DeltaTable(tmp_path / "table")

    table()
    assert why("ignore") is None
    assert why("error") is None
    assert "with name" in why(name="new")
    table().alter.add_constraint({"positive": "i >= 0"})
    assert "constraints" in why()
    table(configuration={"delta.enableChangeDataFeed": "true"})
    assert "delta.enableChangeDataFeed" in why()
    table(configuration={"delta.appendOnly": "true"})
    assert "delta.appendOnly" in why()
    table().alter.set_column_metadata("i", {"comment": "what it is"})
    assert "columns have properties" in why()
    table()
    assert "cannot be sent" in why(commit_properties=(n for n in ()))
    assert os.listdir(tmp_path) == ["table"]


def test_a_new_table_with_properties_that_matter_to_writers(tmp_path):
    options = {"configuration": {"delta.columnMapping.mode": "name", "delta.checkpointInterval": "5"}}
    reason = DeltaWrite.of({"target": tmp_path / "table", "delta_write_options": options})
    assert reason == "with delta.columnMapping.mode"


@pytest.mark.parametrize(
    "other",
    [{"target": "other"}, {"mode": "overwrite"}, {"storage_options": {"key": "secret"}}],
    ids=lambda given: next(iter(given)),
)
def test_ranks_with_different_calls_all_raise(other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []

    def work(transport):
        arguments = {"target": "table", "mode": "append", **(other if transport.rank else {})}
        with pytest.raises(QueryMismatchError, match=r"rank 0 sink_delta to .*table.*, rank 1 ") as caught:
            agree_on_delta(DeltaWrite.of(arguments), transport, op=1)
        found.append(str(caught.value))

    local_transport.run_ranks(2, work)
    assert len(found) == 2
    assert "secret" not in found[0]
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_fails_before_the_plan_leaves_nothing(tmp_path):
    def work(transport):
        if transport.rank == 1:
            raise ValueError("of rank 1")
        agree_on_delta(DeltaWrite(tmp_path / "table", "append", {}), transport, op=1)

    with pytest.raises(ValueError, match="of rank 1"):
        local_transport.run_ranks(2, work)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_only_the_client_sees(tmp_path):
    class Client(ClusterEngine):
        def __init__(self):
            here = ClusterInfo.local()
            super().__init__(StreamingOptions(), ["a", "b"], [here, here])

        def _call(self, name, arguments):
            asked.append(arguments)
            return ["to a folder that not all ranks have"] * 2  # the ranks have another file system

        def _run(self, lf, optimizations):
            return lf.collect()

        def _ask(self, query, arguments, stop):
            raise AssertionError("a rank was asked")

        def _close(self):
            pass

    asked = []
    with Client() as engine, pytest.warns(FallbackWarning, match="sink_delta to a folder that not all ranks"):
        FRAME.lazy().sink_delta(tmp_path / "table", engine=engine)
    assert len(asked) == 1
    assert os.listdir(tmp_path) == ["table"]
    assert_frame_equal(read(tmp_path / "table"), STORED, check_row_order=False)


def test_one_ranks_query_has_the_users_optimisations(tmp_path, monkeypatch):
    flags, seen, own = pl.QueryOptFlags(predicate_pushdown=False), [], pl.LazyFrame.sink_delta

    def sink_delta(self, *args, **options):
        seen.append(options["optimizations"])
        return own(self, *args, **options)

    monkeypatch.setattr(pl.LazyFrame, "sink_delta", sink_delta)
    with SPMDEngine() as engine:  # as a cluster of one worker does
        rank, ids = engine._open_rank("the engine"), engine._next_op_ids()
        rank.sink_table(FRAME.lazy(), ids, flags, "sink_delta", DeltaWrite(tmp_path / "table", "error", {}))
    assert [given.predicate_pushdown for given in seen] == [False]
    assert read(tmp_path / "table").height == FRAME.height


def test_ranks_that_do_not_see_the_folder(tmp_path):
    def work(transport):
        sink = DeltaSink(DeltaPlan(DeltaWrite(tmp_path, "append", {}), tmp_path / "none"), transport, 1)
        return sink.is_seen_by_all()

    assert local_transport.run_ranks(2, work) == [False, False]


SCRIPT = """
import sys, warnings
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning

warnings.simplefilter("error", FallbackWarning)
rows, folder = pl.scan_parquet(sys.argv[1]), sys.argv[2]
with SPMDEngine() as engine:
    for mode in ("error", "append", "overwrite"):
        options = {"partition_by": ["region"]}
        rows.sink_delta(f"{folder}/parted", mode=mode, delta_write_options=options, engine=engine)
        rows.sink_delta(f"{folder}/plain", mode=mode, engine=engine)
    rows.sink_delta(f"{folder}/plain", mode="ignore", engine=engine)
    rows.filter(pl.col("id") < 0).sink_delta(f"{folder}/plain", mode="append", engine=engine)
"""


def test_two_ranks(tmp_path):
    table, out = tmp_path / "rows.parquet", tmp_path / "out"
    out.mkdir()
    ROWS.write_parquet(table, row_group_size=50)
    run_ranks(2, SCRIPT, str(table), str(out), timeout=60).check()
    assert sorted(os.listdir(out)) == ["parted", "plain"]
    for name in ("parted", "plain"):
        assert_frame_equal(read(out / name), ROWS, check_row_order=False)
        assert read(out / name, version=1).height == 2 * ROWS.height
        assert (
            modes(out / name) == ["ErrorIfExists", "Append", "Overwrite", "Append"][: 3 + (name == "plain")]
        )
    last = json.loads(
        (out / "plain" / "_delta_log" / "00000000000000000002.json").read_text().splitlines()[0]
    )
    assert last["commitInfo"]["operation"] == "WRITE"
    assert len(deltalake.DeltaTable(out / "plain").file_uris()) == 2
    assert len(deltalake.DeltaTable(out / "parted").file_uris()) == 6


def test_dask(tmp_path, monkeypatch):
    table = tmp_path / "rows.parquet"
    ROWS.write_parquet(table, row_group_size=50)
    rows = pl.scan_parquet(table)
    monkeypatch.chdir(tmp_path)
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for mode in ("error", "append", "overwrite"):
            rows.sink_delta("out", mode=mode, engine=engine)
        assert len(deltalake.DeltaTable("out").file_uris()) == 2
        rows.sink_delta("out", mode="ignore", engine=engine)
        with pytest.raises(deltalake.exceptions.DeltaError, match="already exists"):
            rows.sink_delta("out", engine=engine)
        bad = rows.with_columns(
            pl.col("id").map_batches(lambda c: 1 // (c[-1] - 299) + c, return_dtype=pl.Int64)
        )
        with pytest.raises(Exception, match="by zero"):
            bad.sink_delta("out", mode="append", engine=engine)
        failing = rows.select(pl.col("id").map_batches(lambda c: 1 // 0, return_dtype=pl.Int64))
        failing.sink_delta("out", mode="ignore", engine=engine)  # which runs no query where a table is
        rows.sink_delta("new", mode="ignore", engine=engine)
        assert len(deltalake.DeltaTable("new").file_uris()) == 2
        # What the ranks cannot, the client does and says so: because of the call, or as they see no such folder.
        with pytest.warns(FallbackWarning, match="sink_delta with schema_mode"):
            rows.sink_delta("out", mode="append", delta_write_options={"schema_mode": "merge"}, engine=engine)
        plan = plan_delta(DeltaWrite(tmp_path / "out", "append", {}))
        plan.end()
        monkeypatch.setattr("cudf_polars.engine.delta_sinks.plan_delta", lambda _: plan)
        with pytest.warns(FallbackWarning, match="a folder that not all ranks have"):
            rows.sink_delta("out", mode="append", engine=engine)
    assert modes("out") == ["ErrorIfExists", "Append", "Overwrite", "Append", "Append"]
    assert read("out").height == 3 * ROWS.height
    assert read("new").height == ROWS.height
    assert sorted(os.listdir(tmp_path)) == ["new", "out", "rows.parquet"]

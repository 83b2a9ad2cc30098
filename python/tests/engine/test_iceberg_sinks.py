"""``sink_iceberg`` by all ranks: data files of each, one commit, and what Polars itself would have written."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.delta_store import StoreFolder
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.lower import FallbackWarning
from support.dask_cluster import start_dask_cluster
from support.ranks import run_ranks
from support.tables import ROWS

pytest.importorskip("pyiceberg")

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.transforms import VoidTransform

from cudf_polars.engine import iceberg_sinks
from cudf_polars.engine.iceberg_sinks import IcebergSink, IcebergWrite
from support.iceberg import (
    KINDS,
    MORE,
    OwnError,
    by_region,
    failing,
    files_below,
    make,
    new_catalog,
    read,
    sink_errors,
    sink_iceberg,
    split,
    strict_warnings,
    summaries,
)

HERE = str(Path(__file__).parents[1])
SECONDS = 60


@pytest.fixture(autouse=True)
def warnings_of_tables():
    with strict_warnings():
        yield


@pytest.fixture
def catalog(tmp_path):
    return new_catalog(tmp_path / "iceberg")


def data_files(table):
    tasks = table.catalog.load_table(table.name()).scan().plan_files()
    return sorted(urlsplit(task.file.file_path).path for task in tasks)


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_polars_writes(nranks, kind, catalog):
    ours, theirs = make(catalog, "db.ours", **KINDS[kind]), make(catalog, "db.theirs", **KINDS[kind])
    calls = [
        (ROWS, {"mode": "append"}),
        (ROWS, {"mode": "append", "snapshot_properties": {"who": "me"}}),
        (ROWS, {"mode": "overwrite"}),
        (MORE, {"mode": "overwrite", "overwrite_filter": pl.col("region") == "north"}),
        (MORE, {"mode": "overwrite", "overwrite_filter": "region = 'south'"}),
    ]
    if kind == "truncated":
        del calls[3:]  # pyiceberg deletes by such partitions only with another package
    if kind == "parted":
        calls.append((MORE, {"mode": "overwrite", "partition_overwrite": "dynamic"}))
    for rows, options in calls:
        made = sink_iceberg(split(rows, nranks), {"target": "db.ours", "catalog": catalog, **options})
        rows.lazy().sink_iceberg("db.theirs", catalog=catalog, **options)
        location = catalog.load_table("db.ours").metadata_location
        assert [answer.rows() for answer in made] == [[(location,)]] * nranks
        assert_frame_equal(read(ours), read(theirs), check_row_order=False)
    found, expected = summaries(ours), summaries(theirs)
    assert [operation for operation, _ in found] == [operation for operation, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one["total-records"] == other["total-records"]
    assert [numbers.get("added-records") for _, numbers in found[:4]] == ["300", "300", None, "300"]
    if kind == "truncated":
        assert int(found[0][1]["added-data-files"]) == {1: 4, 2: 4, 3: 6}[nranks]
    else:
        assert int(found[0][1]["added-data-files"]) == nranks * (3 if kind == "parted" else 1)
    assert found[1][1]["who"] == "me"
    if kind == "sorted":
        tasks = catalog.load_table("db.ours").scan().plan_files()
        written = [task.file for task in tasks if task.file.sort_order_id == 1]
        assert len(written) == 2 * nranks
        for file in written:
            values = pl.read_parquet(file.file_path)["v"].to_list()
            assert values == sorted(values, reverse=True)


def test_each_rank_writes_its_own_rows(catalog):
    table = make(catalog)
    parts = split(ROWS, 3)
    sink_iceberg(parts, {"target": table, "mode": "append"})
    files = [pl.read_parquet(path) for path in data_files(table)]
    assert len(files) == 3
    for file, part in zip(files, parts, strict=True):  # folders are in rank order
        assert_frame_equal(file, part)


def test_ranks_without_rows(catalog, tmp_path):
    table, none = make(catalog), ROWS.clear()
    for mode in ("append", "overwrite"):
        sink_iceberg([none, none], {"target": "db.t", "catalog": catalog, "mode": mode})
        assert read(table).height == 0
    assert files_below(tmp_path / "iceberg") == ["db", "db/t"]
    sink_iceberg([none, ROWS, none], {"target": "db.t", "catalog": catalog, "mode": "append"})
    assert_frame_equal(read(table), ROWS)
    assert len([name for name in files_below(tmp_path) if name.endswith(".parquet")]) == 1
    assert summaries(table)[-1][1]["added-data-files"] == "1"
    sink_iceberg([none, none], {"target": "db.t", "catalog": catalog, "mode": "overwrite"})
    assert read(table).height == 0


def test_new_tables_and_new_columns(catalog):
    small = ROWS.with_columns(
        pl.col("id").cast(pl.UInt16), pl.col("region").cast(pl.Enum(["north", "south", "east"]))
    )
    options = {"create_if_not_exists": True, "create_namespace_if_not_exists": True, "catalog": catalog}
    for target, rows in (("new.ours", split(small, 2)), ("new.theirs", None)):
        for mode in ("append", "overwrite", "append"):
            if rows is None:
                small.lazy().sink_iceberg(target, mode=mode, **options)
            else:
                assert not any(
                    isinstance(one, Exception)
                    for one in sink_iceberg(rows, {"target": target, "mode": mode, **options})
                )
    ours, theirs = catalog.load_table("new.ours"), catalog.load_table("new.theirs")
    assert ours.schema() == theirs.schema()
    assert_frame_equal(read(ours), read(theirs), check_row_order=False)

    more = ROWS.with_columns(x=pl.col("v") * 2)
    sink_iceberg(split(more, 2), {"target": ours, "mode": "append", "schema_mode": "merge"})
    more.lazy().sink_iceberg(theirs, mode="append", schema_mode="merge")
    assert read(ours)["x"].null_count() == 600
    assert_frame_equal(read(ours), read(theirs), check_row_order=False)
    other = ROWS.select("v", y="region")
    sink_iceberg(split(other, 3), {"target": ours, "mode": "overwrite", "schema_mode": "overwrite"})
    assert_frame_equal(read(ours), other, check_row_order=False)


def test_another_folder_for_data(catalog, tmp_path, monkeypatch):
    table = make(catalog, properties={"write.data.path": f"file://{tmp_path}/of data/here"})
    monkeypatch.setattr(IcebergSink, "_commit_all", lambda *_: 1 // 0)
    errors = sink_errors(split(ROWS, 2), {"target": table, "mode": "append"})
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2
    assert not (tmp_path / "of data").exists()
    monkeypatch.undo()
    sink_iceberg(split(ROWS, 2), {"target": table, "mode": "append"})
    assert len(list((tmp_path / "of data" / "here").rglob("*.parquet"))) == 2
    assert_frame_equal(read(table), ROWS, check_row_order=False)


SCRIPT = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from cudf_polars.engine.spmd import SPMDEngine
from support.tables import ROWS, catalog_of

warnings.simplefilter("error")
catalog = catalog_of(Path(sys.argv[2]))
with SPMDEngine() as engine:
    rows = ROWS[engine.rank :: 2].lazy()
    rows.sink_iceberg("db.t", mode="append", catalog=catalog, engine=engine)
    some = "region in ('north', 'south', 'west', 'middle')"  # a set, with another order in each process
    rows.sink_iceberg("db.t", mode="overwrite", overwrite_filter=some, catalog=catalog, engine=engine)
"""


@pytest.mark.timeout(SECONDS)
def test_ranks_that_are_processes(catalog, tmp_path):
    table = make(catalog)
    run_ranks(2, SCRIPT, HERE, str(tmp_path / "iceberg"), timeout=SECONDS).check()
    kept = ROWS.filter(pl.col("region") == "east")
    assert_frame_equal(read(table), pl.concat([ROWS, kept]), check_row_order=False)
    assert len([name for name in files_below(tmp_path) if name.endswith(".parquet")]) >= 4


def test_the_users_table_knows_its_new_version_on_every_rank(catalog):
    make(catalog)
    tables = [catalog.load_table("db.t") for _ in range(3)]
    parts = split(ROWS, 3)
    for _ in range(2):
        sink_iceberg(parts, lambda rank: {"target": tables[rank], "mode": "append"})
    now = catalog.load_table("db.t")
    assert {table.metadata_location for table in tables} == {now.metadata_location}
    assert all(table.metadata == now.metadata for table in tables)
    assert [len(table.snapshots()) for table in tables] == [2, 2, 2]


# --- calls that differ, and those that Polars refuses ------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"target": "db.u"}, "'db.u'"),
        ({"mode": "overwrite"}, "mode='overwrite'"),
        ({"mode": "overwrite", "schema_mode": "overwrite"}, "mode='overwrite'"),
        ({"snapshot_properties": {"who": "secret"}}, "snapshot_properties"),
        ({"compression": "snappy"}, "compression"),
        ({"schema_mode": "overwrite"}, "ValueError"),
        ({"catalog": None}, "catalog|arguments that raise"),
    ],
    ids=str,
)
def test_ranks_with_different_calls_all_raise(other, says, catalog, tmp_path):
    for name in ("db.t", "db.u"):
        make(catalog, name)
    before = files_below(tmp_path)
    if "catalog" in other:
        other = {"catalog": new_catalog(tmp_path / "another")}
        make(other["catalog"])
        before = files_below(tmp_path)

    def arguments(rank):
        return {"target": "db.t", "mode": "append", "catalog": catalog, **(other if rank == 1 else {})}

    errors = sink_errors(split(ROWS, 3), arguments)
    assert [type(error) for error in errors] == [QueryMismatchError] * 3
    for error in errors:
        assert "rank 0 sink_iceberg to 'db.t', mode='append', rank 1 sink_iceberg" in str(error)
        assert "secret" not in str(error)
    assert any(word in str(errors[0]) for word in says.split("|"))
    assert files_below(tmp_path) == before
    assert summaries(catalog.load_table("db.t")) == []


def test_ranks_with_other_tables_of_one_name_all_raise(catalog, tmp_path):
    one = make(catalog)
    stale = catalog.load_table("db.t")
    catalog.drop_table("db.t")
    one = make(catalog)
    errors = sink_errors(split(ROWS, 2), lambda rank: {"target": (one, stale)[rank], "mode": "append"})
    assert [type(error) for error in errors] == [QueryMismatchError] * 2
    assert "another table" in str(errors[1])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target": "db.missing"}, NoSuchTableError),
        ({"schema_mode": "overwrite"}, ValueError),
        ({"partition_overwrite": "dynamic", "mode": "overwrite"}, ValueError),
        ({"overwrite_filter": pl.col("id") % 2 == 1, "mode": "overwrite"}, None),
        ({"create_namespace_if_not_exists": True}, ValueError),
        ({"target": "db.void"}, NotImplementedError),
        ({"target": "db.other"}, None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_what_polars_refuses(arguments, error, catalog, tmp_path):
    make(catalog)
    make(catalog, "db.void", partition_spec=by_region(VoidTransform()))
    catalog.create_table("db.other", schema=ROWS.select("v").to_arrow().schema)
    before = files_below(tmp_path)
    call = {"target": "db.t", "mode": "append", "catalog": catalog, **arguments}
    with pytest.raises(error or Exception) as polars_own:
        ROWS.lazy().sink_iceberg(**call)
    with contextlib.suppress(FileNotFoundError):
        assert files_below(tmp_path) == before
    errors = sink_errors(split(ROWS, 3), call)
    assert [type(one) for one in errors] == [polars_own.type] * 3
    says = str(polars_own.value).partition("\n")[0]  # Polars adds the plan
    assert [str(one).partition("\n")[0] for one in errors] == [says] * 3
    assert files_below(tmp_path) == before


# --- what one rank writes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"write.object-storage.enabled": "true"}, "to a table with write.object-storage.enabled"),
        ({"write.data.path": "nowhere/at/all"}, "to another store"),
    ],
    ids=str,
)
def test_tables_of_one_writer(properties, says, catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = make(catalog, properties=properties)
    call = {"target": "db.t", "mode": "append", "catalog": catalog}
    errors = sink_errors(split(ROWS, 2), call, executor_options={"fallback_mode": "raise"})
    assert [type(error) for error in errors] == [NotImplementedError] * 2
    assert f"sink_iceberg {says}." in str(errors[1])
    made = sink_iceberg(split(ROWS, 2), call, executor_options={"fallback_mode": "silent"})
    assert made[0].item() == made[1].item() == catalog.load_table("db.t").metadata_location
    assert [numbers["added-records"] for _, numbers in summaries(table)] == ["300"]


def test_another_version_of_polars(catalog, monkeypatch):
    table = make(catalog)
    monkeypatch.setattr(iceberg_sinks, "_state_class", lambda: None)
    call = {"target": "db.t", "mode": "append", "catalog": catalog}
    warnings.simplefilter("always", FallbackWarning)
    with pytest.warns(FallbackWarning, match=r"sink_iceberg with this version of Polars\."):
        sink_iceberg(split(ROWS, 2), call)
    assert_frame_equal(read(table), ROWS)


def test_other_sinks_of_polars_commit_as_before(catalog):
    assert iceberg_sinks._state_class() is iceberg_sinks._state_class()
    table = make(catalog)
    with SPMDEngine() as engine:
        for own in ("streaming", "in-memory", engine):
            ROWS.lazy().sink_iceberg(table, mode="append", engine=own)
    assert len(summaries(table)) == 3
    assert read(table).height == 3 * ROWS.height


def test_no_secret_is_shown(catalog):
    table = make(catalog)
    catalog.properties["token"] = "hush"
    storage = {"s3.secret-access-key": "hush"}
    write = IcebergWrite.of(
        {"self": ROWS.lazy(), "target": table, "mode": "append", "storage_options": storage}
    )
    plan = write.plan()
    plan.end()
    assert plan.state.iceberg_storage_properties == storage
    for shown in (
        repr(write),
        write.describe(),
        str(write.digests()),
        repr(plan),
        repr(plan.without_access().state),
    ):
        assert "hush" not in shown


# --- clusters ----------------------------------------------------------------------------------------------------


def raised(work):
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("no error")


@pytest.mark.timeout(SECONDS)
def test_dask(catalog, tmp_path, monkeypatch):
    rows_file = tmp_path / "rows.parquet"
    ROWS.write_parquet(rows_file, row_group_size=50)
    rows = pl.scan_parquet(rows_file)
    plain, parted = make(catalog), make(catalog, "db.parted", partition_spec=by_region())
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine:
        for mode in ("append", "append", "overwrite"):
            made = rows.sink_iceberg("db.t", mode=mode, catalog=catalog, engine=engine)
            assert made.item() == catalog.load_table("db.t").metadata_location
            rows.sink_iceberg(parted, mode=mode, engine=engine)
        assert parted.metadata_location == catalog.load_table("db.parted").metadata_location
        for table, count in ((plain, 2), (parted, 6)):
            assert_frame_equal(read(table), ROWS, check_row_order=False)
            assert len(data_files(table)) == count
            assert len(summaries(table)) == 4
        before = files_below(tmp_path)

        # What fails on a rank, or where it commits.
        bad = rows.with_columns(
            pl.col("id").map_batches(lambda c: 1 // (c[-1] - 299) + c, return_dtype=pl.Int64)
        )
        assert "by zero" in str(raised(lambda: bad.sink_iceberg(plain, mode="append", engine=engine)))
        error = raised(lambda: rows.sink_iceberg("db.none", mode="append", catalog=catalog, engine=engine))
        assert isinstance(error, NoSuchTableError)
        stale = catalog.load_table("db.t")
        with plain.transaction() as change:
            change.set_properties({"commit.retry.num-retries": "0"})
        stale = catalog.load_table("db.t")
        before = files_below(tmp_path)
        plain.refresh().append(MORE.to_arrow())
        after = files_below(tmp_path)
        error = raised(lambda: rows.sink_iceberg(stale, mode="append", engine=engine))
        assert isinstance(error, CommitFailedException)
        assert set(after) > set(before)
        assert files_below(tmp_path) == after

        # A catalog that only this process has: the client writes.
        module = types.ModuleType("of_this_process")
        module.OwnCatalog = type("OwnCatalog", (type(catalog),), {"__module__": "of_this_process"})
        monkeypatch.setitem(sys.modules, "of_this_process", module)
        mine = make(module.OwnCatalog("test", **catalog.properties), "db.mine")
        warnings.simplefilter("always", FallbackWarning)
        with pytest.warns(FallbackWarning, match=r"sink_iceberg to a catalog that rank 0 does not reach"):
            rows.sink_iceberg(mine, mode="append", engine=engine)
        assert_frame_equal(read(mine), ROWS)
        assert len(summaries(mine)) == 1
        with DaskEngine(dask_client=client, executor_options={"fallback_mode": "raise"}) as strict:
            error = raised(lambda: rows.sink_iceberg(mine, mode="append", engine=strict))
        assert isinstance(error, NotImplementedError)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


# --- object stores -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store():
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    from support.moto_store import moto_process

    with moto_process() as found:
        yield found


@pytest.fixture
def far(store, tmp_path):
    """Give a catalog whose tables are in a store, and how Polars gets there."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "far",
        uri=f"sqlite:///{tmp_path}/far.db",
        warehouse=f"s3://bucket/{tmp_path.name}",
        **{
            "s3.endpoint": store.url,
            "s3.access-key-id": store.key,
            "s3.secret-access-key": store.secret,
            "s3.region": "us-east-1",
        },
    )
    catalog.create_namespace("db")
    return catalog, store.storage_options


def objects(store, folder):
    names = StoreFolder(f"s3://bucket/{folder}", store.storage_options).names()
    return sorted(name for name in names if name.endswith(".parquet"))


@pytest.mark.timeout(SECONDS)
def test_object_stores(far, store, tmp_path, monkeypatch):
    catalog, options = far
    make(catalog, **KINDS["parted"])
    call = {"target": "db.t", "catalog": catalog, "storage_options": options}
    for mode in ("append", "append", "overwrite"):
        made = sink_iceberg(split(ROWS, 2), {**call, "mode": mode})
        assert made[1].item() == catalog.load_table("db.t").metadata_location
    table = catalog.load_table("db.t")
    assert_frame_equal(pl.scan_iceberg(table, storage_options=options).collect(), ROWS, check_row_order=False)
    assert len(table.snapshots()) == 4
    before = objects(store, tmp_path.name)
    assert len(before) == 3 * 2 * 3

    def refuse(*_):
        raise CommitFailedException("refused")

    with monkeypatch.context() as patched:
        patched.setattr(type(catalog), "commit_table", refuse)
        errors = sink_errors(split(ROWS, 3), {**call, "mode": "overwrite"})
    assert [type(error) for error in errors] == [CommitFailedException] * 3
    assert objects(store, tmp_path.name) == before

    own = IcebergSink._write
    monkeypatch.setattr(
        IcebergSink,
        "_write",
        lambda sink, rows, *more: own(
            sink, failing(rows.collect()) if sink._transport.rank == 1 else rows, *more
        ),
    )
    errors = sink_errors(split(ROWS, 3), {**call, "mode": "append"})
    assert [type(error) for error in errors] == [OwnError] * 3
    assert not any(store.secret in str(error) for error in errors)
    assert objects(store, tmp_path.name) == before


@pytest.mark.timeout(SECONDS)
def test_a_store_that_a_rank_does_not_reach(far, store, tmp_path, monkeypatch):
    catalog, options = far
    table = make(catalog)
    own = StoreFolder.names

    def names(self):
        if threading.current_thread() is unlucky[0]:
            raise OSError(f"no way with {store.secret}")
        return own(self)

    unlucky, why_not = [None], IcebergSink.why_not

    def ask(self):
        if self._transport.rank == 1:
            unlucky[0] = threading.current_thread()
        return why_not(self)

    monkeypatch.setattr(StoreFolder, "names", names)
    monkeypatch.setattr(IcebergSink, "why_not", ask)
    call = {"target": "db.t", "catalog": catalog, "storage_options": options, "mode": "append"}
    errors = sink_errors(split(ROWS, 2), call, executor_options={"fallback_mode": "raise"})
    assert [type(error) for error in errors] == [NotImplementedError] * 2
    assert all("a store that rank 1 does not reach (OSError)" in str(error) for error in errors)
    assert not any(store.secret in str(error) for error in errors)
    sink_iceberg(split(ROWS, 2), call, executor_options={"fallback_mode": "silent"})
    found = catalog.load_table(table.name())
    assert_frame_equal(pl.scan_iceberg(found, storage_options=options).collect(), ROWS)
    assert len(objects(store, tmp_path.name)) == 1

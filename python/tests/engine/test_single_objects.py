"""One object of a store that one rank writes is there when it is whole: what fails or is killed leaves the old one."""

from __future__ import annotations

import io
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine import store_upload
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine
from support.azure_store import azure_store
from support.google_store import google_store
from support.object_store import object_store

obstore = pytest.importorskip("obstore")

SECONDS = 60
KINDS = ["parquet", "ipc", "csv", "ndjson"]
MANY = pl.DataFrame({"id": range(300_000)}).with_columns(text=pl.format("t{}", pl.col("id").hash()))
OLD = pl.DataFrame({"id": [1], "text": ["old"]})


@pytest.fixture(scope="module")
def stores():
    with object_store() as s3, google_store() as google, azure_store() as azure:
        yield {"s3": s3, "google": google, "azure": azure}


@pytest.fixture(params=["s3", "google", "azure"])
def store(request, stores):
    store = stores[request.param]
    store.objects.clear()
    store.uploads.clear()
    return store


@pytest.fixture(params=["large", "small"])
def parts_of_objects(request, monkeypatch):
    """Objects in many parts, or in one."""
    if request.param == "large":
        monkeypatch.setattr(store_upload, "_PART_BYTES", 500_000)


@pytest.fixture
def engine():
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
        yield engine


def written(store, kind):
    """Return the one object's rows."""
    ((name, content),) = store.objects.items()
    assert name == f"bucket/some/rows.{kind}"
    return getattr(pl, f"read_{kind}")(io.BytesIO(content))


def parts_left(store):
    """Return what is left of uploads, but for Azure, which forgets blocks by itself after a week."""
    return {} if store.base == "az://bucket" else store.uploads


def sink(rows, store, kind, engine, **options):
    target = f"{store.base}/some/rows.{kind}"
    getattr(rows.lazy(), f"sink_{kind}")(
        target, storage_options=store.storage_options, engine=engine, **options
    )


@pytest.fixture(scope="module")
def failing_late(tmp_path_factory):
    """Return rows of which most are written before the query fails."""
    path = tmp_path_factory.mktemp("rows") / "many.parquet"
    MANY.write_parquet(path, row_group_size=10_000)

    def fail(column):
        if column.max() > 290_000:
            raise ValueError("of this rank")
        return column

    late = pl.col("id").map_batches(fail, return_dtype=pl.Int64, is_elementwise=True)
    return pl.scan_parquet(path).with_columns(late)


@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("parts_of_objects")
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_fails_leaves_the_old_object(kind, store, engine, failing_late):
    with pytest.raises(Exception, match="of this rank"):
        sink(failing_late, store, kind, engine)
    assert store.objects == {}
    assert parts_left(store) == {}
    sink(OLD, store, kind, engine, mkdir=True)
    assert_frame_equal(written(store, kind), OLD)
    with pytest.raises(Exception, match="of this rank"):
        sink(failing_late, store, kind, engine)
    assert_frame_equal(written(store, kind), OLD)
    sink(MANY, store, kind, engine)
    assert_frame_equal(written(store, kind), MANY)
    assert parts_left(store) == {}


@pytest.mark.timeout(SECONDS)
def test_what_a_failed_query_writes_late_goes_nowhere(store, engine, monkeypatch):
    late = []

    def fail(rows, target, extension, **kwargs):
        target.write(b"some")
        late.append(target)
        raise pl.exceptions.ComputeError("no rows")

    monkeypatch.setattr("cudf_polars.engine.sinks.write_rows", fail)
    with pytest.raises(pl.exceptions.ComputeError, match="no rows"):
        sink(OLD, store, "csv", engine)
    assert late[0].write(b"more") == 4
    late[0].close()
    assert store.objects == {}


@pytest.mark.timeout(SECONDS)
def test_the_callback_hears_of_the_object(store, engine):
    told = []
    sink(MANY, store, "parquet", engine, sinked_paths_callback=lambda args: told.extend(args.paths))
    ((_, content),) = store.objects.items()
    found = [(file.path, file.num_rows, file.num_bytes) for file in told]
    assert found == [(f"{store.base}/some/rows.parquet", MANY.height, len(content))]


@pytest.mark.timeout(SECONDS)
def test_refused_requests(store, engine):
    for rows in (OLD, MANY):
        with pytest.raises((OSError, pl.exceptions.PolarsError), match="403") as raised:
            rows.lazy().sink_csv(f"{store.base}/no.csv", storage_options=store.wrong_options, engine=engine)
        assert [secret for secret in store.secrets if secret in str(raised.value)] == []
    assert store.objects == {}


@pytest.mark.timeout(SECONDS)
def test_what_polars_writes_alone(stores, engine, monkeypatch):
    """What it alone can do: keys that only this process has, encryption; and where obstore is not installed."""
    store, lock = stores["s3"], threading.Lock()
    store.objects.clear()
    monkeypatch.setattr(store_upload.Upload, "finish", lambda _: pytest.fail("not to Polars"))

    def provider():
        return store.credentials, lock.locked() or None

    target = "s3://bucket/some/rows.csv"
    OLD.lazy().sink_csv(target, storage_options=store.place, credential_provider=provider, engine=engine)
    assert_frame_equal(written(store, "csv"), OLD)
    encrypted = {**store.storage_options, "aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k"}
    OLD.head(0).lazy().sink_csv(target, storage_options=encrypted, engine=engine)
    assert written(store, "csv").height == 0
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    sink(OLD, store, "csv", engine)
    assert_frame_equal(written(store, "csv"), OLD)


def test_the_ending_of_its_compression(stores, engine):
    store = stores["s3"]
    store.objects.clear()
    with pytest.raises(pl.exceptions.InvalidOperationError, match="check_extension"):
        sink(OLD, store, "csv", engine, compression="gzip")
    assert store.objects == {}

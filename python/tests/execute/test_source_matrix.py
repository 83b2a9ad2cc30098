"""Every row of the table of sources, on 1 and 2 ranks and on Dask: right, by all ranks or by one with its reason.

Rows of object stores hold for S3, Google Cloud Storage and Azure.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import polars as pl
import pyarrow.dataset
import pytest
from execute.compare import ORDINARY, assert_like_polars
from polars.io.plugins import register_io_source
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.lower import FallbackWarning
from cudf_polars.lower.source_table import SOURCES, SourceRow
from support.azure_store import azure_process
from support.dask_cluster import start_dask_cluster
from support.google_store import google_process
from support.moto_store import moto_process
from support.tables import catalog_of, make_iceberg

pytest.importorskip("deltalake")
pytest.importorskip("moto")
pytest.importorskip("obstore")
pytest.importorskip("pyiceberg")

ROWS = pl.DataFrame(
    {
        "id": range(600),
        "region": [("north", "south")[i % 2] for i in range(600)],
        "v": [i / 4 for i in range(600)],
    }
)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the bases of each store's paths and their options, with the tables there."""
    folder = tmp_path_factory.mktemp("matrix")
    make_iceberg(folder / "iceberg")
    here = {str(folder): {}}
    with moto_process() as s3, google_process() as google, azure_process() as azure:
        stores = {store.base: store.storage_options for store in (s3, google, azure)}
        for base, options in {**here, **stores}.items():
            given = {"storage_options": options} if options else {}
            ROWS.lazy().sink_parquet(f"{base}/rows.parquet", row_group_size=100, **given)
            ROWS.lazy().sink_csv(f"{base}/rows.csv", **given)
            ROWS.lazy().sink_csv(f"{base}/packed.csv.gz", compression="gzip", **given)
            ROWS.lazy().sink_ndjson(f"{base}/rows.ndjson", **given)
            ROWS.lazy().sink_ipc(f"{base}/rows.ipc", **given)
            for (region,), part in ROWS.partition_by("region", as_dict=True, include_key=False).items():
                path = f"{base}/hive/region={region}/0.parquet"
                part.lazy().sink_parquet(path, mkdir=True, **given)
            of_delta = {"storage_options": {**options, "conditional_put": "etag"}} if options else {}
            for half in (ROWS[:300], ROWS[300:]):
                half.write_delta(f"{base}/delta", mode="append", **of_delta)
        yield {"file system": here, "object store": stores, "bytes in the query": here}


def scan_bytes(format: str, base: str) -> pl.LazyFrame:
    name = format.lower()
    content = io.BytesIO((Path(base) / f"rows.{name}").read_bytes())
    return getattr(pl, f"scan_{name}")(content)


def plugin(columns, predicate, n_rows, _):
    rows = ROWS if n_rows is None else ROWS.head(n_rows)
    rows = rows if predicate is None else rows.filter(predicate)
    yield rows if columns is None else rows.select(columns)


def scan(row: SourceRow, base: str, options: dict[str, str]) -> pl.LazyFrame:
    if row.store == "bytes in the query":
        return scan_bytes(row.format, base)
    given = {"storage_options": options} if options else {}
    match row.format:
        case "Parquet":
            return pl.scan_parquet(f"{base}/rows.parquet", **given)
        case "Parquet, hive partitions":
            return pl.scan_parquet(f"{base}/hive/", hive_partitioning=True, **given)
        case "CSV":
            return pl.scan_csv(f"{base}/rows.csv", **given)
        case "CSV, compressed":
            return pl.scan_csv(f"{base}/packed.csv.gz", **given)
        case "NDJSON":
            return pl.scan_ndjson(f"{base}/rows.ndjson", **given)
        case "IPC":
            return pl.scan_ipc(f"{base}/rows.ipc", **given)
        case "Delta":
            return pl.scan_delta(f"{base}/delta", **given)
        case "Iceberg":
            return pl.scan_iceberg(catalog_of(Path(base) / "iceberg").load_table("db.t"))
        case "pyarrow dataset":
            return pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(f"{base}/rows.parquet"))
        case "IO plugin":
            return register_io_source(plugin, schema=ROWS.schema)
    raise AssertionError(f"no test of {row.format}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("nranks", [1, 2])
@pytest.mark.parametrize("row", SOURCES, ids=lambda row: f"{row.format}, {row.store}")
def test_source(row: SourceRow, nranks: int, places) -> None:
    for base, options in places[row.store].items():
        check(row, nranks, scan(row, base, options))


@pytest.fixture(scope="module")
def dask_engine():
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine:
        yield engine


@pytest.mark.timeout(60)
@pytest.mark.parametrize("row", SOURCES, ids=lambda row: f"{row.format}, {row.store}")
def test_source_on_dask(row: SourceRow, places, dask_engine: DaskEngine) -> None:
    for base, options in places[row.store].items():
        query = scan(row, base, options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = query.collect(engine=dask_engine)
        assert_frame_equal(found, query.collect(engine="streaming"), check_row_order=False)
        texts = [str(one.message) for one in caught if issubclass(one.category, FallbackWarning)]
        assert len(texts) == bool(row.why_not)
        assert all(row.why_not in text for text in texts)


def check(row: SourceRow, nranks: int, query: pl.LazyFrame) -> None:
    outcomes = assert_like_polars(query, nranks, ORDINARY, ordered=False)
    heights = [outcome.frame.height for outcome in outcomes]
    if nranks == 1 or not row.why_not:
        assert outcomes[0].fallbacks == []
        assert min(heights) > 0
    else:
        assert [text for text in outcomes[0].fallbacks if row.why_not in text] == outcomes[0].fallbacks != []
        assert heights[1] == 0

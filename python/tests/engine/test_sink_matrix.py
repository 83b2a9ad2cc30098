"""Every row of the table of sinks, by 1 rank, 2 ranks and Dask: right, and written by all ranks without a warning.

Rows of object stores hold for S3, Google Cloud Storage and Azure; Iceberg's for S3, whose catalogs reach it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from cudf_polars.lower.source_table import SINKS, SinkRow
from support.azure_store import azure_process
from support.cluster import on_ranks
from support.dask_cluster import start_dask_cluster
from support.google_store import google_process
from support.moto_store import moto_process
from support.store_server import Store
from support.tables import ROWS, catalog_of, remote_catalog_of

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("moto")
pytest.importorskip("obstore")
pytest.importorskip("pyiceberg")

SECONDS = 60
PLACES = ["file system", "s3", "google", "azure"]
CASES = [
    (row, place)
    for row in SINKS
    for place in PLACES
    if (place == "file system") == (row.store == "file system")
    and not (row.sink == "sink_iceberg" and place in ("google", "azure"))
]
ENGINES = {"1 rank": 1, "2 ranks": 2, "Dask": 2}
Place = tuple[str, Store | None]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """Return the base of each place, and its store."""
    with moto_process() as s3, google_process() as google, azure_process() as azure:
        stores: dict[str, Store] = {"s3": s3, "google": google, "azure": azure}
        folder = tmp_path_factory.mktemp("matrix")
        yield {"file system": (str(folder), None), **{name: (s.base, s) for name, s in stores.items()}}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    ROWS.write_parquet(path, row_group_size=50)
    return pl.scan_parquet(path)


@pytest.fixture(scope="module")
def dask_engine() -> Iterator[DaskEngine]:
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine:
        yield engine


def catalog_in(target: str, store: Store | None, folder: Path) -> Any:
    if store is None:
        return catalog_of(folder)
    return remote_catalog_of(folder, target, store.storage_options)


def write(row: SinkRow, rows: pl.LazyFrame, target: str, given: dict[str, Any], engine: Any) -> None:
    match row.sink:
        case "sink_* to pl.PartitionBy":
            rows.sink_parquet(pl.PartitionBy(target, key="region"), engine=engine, **given)
        case "sink_*(lazy=True)":
            rows.sink_parquet(target, lazy=True, **given).collect(engine=engine)
        case _:
            getattr(rows, row.sink)(target, engine=engine, **given)


def check(row: SinkRow, target: str, given: dict[str, Any], nranks: int, catalog: Any) -> None:
    """Check what a reader finds, and that each rank has written its part of it."""
    match row.sink:
        case "sink_delta":
            found = pl.read_delta(target, **given)
            files = len(
                deltalake.DeltaTable(target, storage_options=given.get("storage_options")).file_uris()
            )
        case "sink_iceberg":
            table = catalog.load_table("db.t")
            found = pl.scan_iceberg(table, **given).collect()
            files = len(list(table.scan().plan_files()))
        case "sink_* to pl.PartitionBy":
            scan = pl.scan_parquet(f"{target}/**/*.parquet", include_file_paths="path", **given)
            parts = scan.collect(engine="streaming")
            found, files = parts.drop("path"), parts["path"].n_unique() // 3
            assert found.columns == ROWS.columns
        case _:
            kind = "parquet" if "lazy" in row.sink else row.sink.removeprefix("sink_")
            scan = getattr(pl, f"scan_{kind}")(f"{target}/*.{kind}", include_file_paths="path", **given)
            parts = scan.collect(engine="streaming")
            found, files = parts.drop("path"), parts["path"].n_unique()
            assert_frame_equal(found, ROWS)
    assert_frame_equal(found, ROWS, check_row_order=False)
    assert files == nranks


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    ("row", "place"), CASES, ids=lambda value: value.sink if isinstance(value, SinkRow) else value
)
def test_sink(
    row: SinkRow,
    place: str,
    name: str,
    places: dict[str, Place],
    rows: pl.LazyFrame,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    base, store = places[place]
    target = f"{base}/{name} {row.sink}".replace(" ", "-").replace("*", "any")
    options = (
        {} if store is None else store.delta_options if row.sink == "sink_delta" else store.storage_options
    )
    given: dict[str, Any] = {"storage_options": options} if options else {}
    catalog = None
    arguments = (target, given)
    if row.sink == "sink_iceberg":
        catalog = catalog_in(target, store, tmp_path)
        catalog.create_namespace("db")
        catalog.create_table("db.t", schema=ROWS.to_arrow().schema)
        arguments = ("db.t", {**given, "mode": "append", "catalog": catalog})
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        run_with(name, request, lambda engine: write(row, rows, *arguments, engine))
    check(row, target, given, ENGINES[name], catalog)


def run_with(name: str, request: pytest.FixtureRequest, work: Callable[[Any], None]) -> None:
    if name == "Dask":
        work(request.getfixturevalue("dask_engine"))
        return

    def on_rank(comm: Any) -> None:
        with SPMDEngine(comm=comm) as engine:
            work(engine)

    on_ranks(ENGINES[name], on_rank)


def test_all_sinks_are_written_by_all_ranks() -> None:
    assert all(row.distributed for row in SINKS)

"""Iceberg tables written by ranks that are threads of this process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.cluster import on_ranks
from support.tables import ROWS, catalog_of

__all__ = [
    "KINDS",
    "MORE",
    "SCHEMA",
    "OwnError",
    "by_region",
    "failing",
    "files_below",
    "make",
    "new_catalog",
    "read",
    "sink_errors",
    "sink_iceberg",
    "split",
    "strict_warnings",
    "summaries",
]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "v", DoubleType()),
)
"""The columns of ``ROWS``."""
MORE = ROWS.head(50).with_columns(pl.col("id") + 300, region=pl.lit("east"))
"""Other rows, of one region."""


def by_region(transform: Any = None) -> PartitionSpec:
    """Return partitions by region."""
    return PartitionSpec(PartitionField(2, 1000, transform or IdentityTransform(), "region"))


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "parted": {"partition_spec": by_region()},
    "truncated": {"partition_spec": PartitionSpec(PartitionField(1, 1000, TruncateTransform(75), "id_cut"))},
    "sorted": {"sort_order": SortOrder(SortField(3, IdentityTransform(), SortDirection.DESC))},
}
"""Options of new tables."""


@contextlib.contextmanager
def strict_warnings() -> Iterator[None]:
    """Make a fallback an error; overwriting a table without rows is not worth a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        warnings.simplefilter("error", FallbackWarning)
        yield


def new_catalog(folder: Path) -> Any:
    """Make a catalog with a namespace ``db`` in a new folder."""
    folder.mkdir()
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    return catalog


def make(catalog: Any, name: str = "db.t", **options: Any) -> Any:
    """Make a table for ``ROWS``."""
    return catalog.create_table(name, schema=SCHEMA, **options)


def split(rows: pl.DataFrame, nranks: int) -> list[pl.DataFrame]:
    """Return the part of each rank: all have rows of all regions."""
    size = -(-rows.height // nranks)
    return [rows.slice(rank * size, size) for rank in range(nranks)]


class OwnError(Exception):
    """An error that nobody else raises."""


def failing(rows: pl.DataFrame) -> pl.LazyFrame:
    """Return rows whose reading fails after some of them."""

    def fail(_: pl.DataFrame) -> pl.DataFrame:
        raise OwnError("of this rank")

    return pl.concat([rows.lazy(), rows.lazy().map_batches(fail, schema=rows.schema)])


def sink_iceberg(
    parts: Sequence[pl.DataFrame | pl.LazyFrame],
    arguments: Callable[[int], dict[str, Any]] | dict[str, Any],
    **engine: Any,
) -> list[Any]:
    """Let a rank for each of ``parts`` write it, and return what each rank got, by rank: the answer or an error.

    Parameters
    ----------
    arguments
        Of ``sink_iceberg``; by rank, if ranks differ.
    engine
        Options of the engine.
    """

    def work(comm: Any) -> Any:
        mine = arguments(comm.rank) if callable(arguments) else arguments
        with SPMDEngine(comm=comm, **engine) as opened:
            try:
                return parts[comm.rank].lazy().sink_iceberg(**mine, engine=opened)
            except Exception as error:
                return error

    return on_ranks(len(parts), work)


def sink_errors(parts: Sequence[Any], arguments: Any, **engine: Any) -> list[Exception]:
    """Return the errors that all ranks raise, by rank."""
    found = sink_iceberg(parts, arguments, **engine)
    assert all(isinstance(one, Exception) for one in found), found
    return found


def read(table: Any) -> pl.DataFrame:
    """Return what Polars finds in the table now."""
    return pl.scan_iceberg(table.catalog.load_table(table.name())).collect()


def summaries(table: Any) -> list[tuple[str, dict[str, str]]]:
    """Return the operation of each snapshot and the numbers of its summary that do not depend on the files' sizes."""
    found = []
    for snapshot in table.catalog.load_table(table.name()).snapshots():
        numbers = snapshot.summary.additional_properties
        kept = {key: numbers[key] for key in sorted(numbers) if "size" not in key and "polars" not in key}
        found.append((snapshot.summary.operation.value, kept))
    return found


def files_below(folder: Path) -> list[str]:
    """Return the names of all files and folders there, except a database's own and what pyiceberg writes."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "metadata" not in path.parts and not path.name.startswith("catalog.db")
    )

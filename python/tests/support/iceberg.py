"""Iceberg tables written by ranks that are threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.engine.spmd import SPMDEngine
from support.cluster import on_ranks
from support.tables import catalog_of

__all__ = ["files_below", "new_catalog", "read", "sink_errors", "sink_iceberg", "summaries"]


def new_catalog(folder: Path) -> Any:
    """Make a catalog with a namespace ``db`` in a new folder."""
    folder.mkdir()
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    return catalog


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

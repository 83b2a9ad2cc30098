"""Table formats become native scans where these give exactly the table's rows, so that ranks can share the files.

A Delta table is a list of Parquet files, and values of partition columns in their paths; an Iceberg table a list of
files and rules for their columns. What is more than files (deleted rows, renamed columns, readers by pyarrow) is read
as Polars itself reads it, by one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from cudf_polars.plan.datasets import dataset_of, is_dataset
from cudf_polars.plan.iceberg_table import native_scan
from cudf_polars.plan.serialized import deserialize_plan, serialize_plan

__all__ = ["Tables", "resolve_tables"]


@dataclass(frozen=True)
class Tables:
    """A query of which table formats are native scans where they can be.

    Attributes
    ----------
    lf
        The query.
    complete
        Whether none is left.
    """

    lf: pl.LazyFrame
    complete: bool


def resolve_tables(form: Any) -> Tables:
    """Put native scans in the place of table formats in a query.

    Parameters
    ----------
    form
        The query's JSON form.
    """
    left: list[Any] = []
    known: dict[str, Any] = {}

    def replace(form: Any) -> Any:
        key = repr(form)
        if key not in known:
            native = _native(form)
            known[key] = form if native is None else native
            if native is None:
                left.append(form)
        return known[key]

    return Tables(deserialize_plan(_map_datasets(form, replace)), complete=not left)


def _map_datasets(form: Any, change: Callable[[Any], Any]) -> Any:
    if is_dataset(form):
        return change(form)
    if isinstance(form, dict):
        return {key: _map_datasets(value, change) for key, value in form.items()}
    if isinstance(form, list) and form and not isinstance(form[0], int):  # bytes are lists of integers
        return [_map_datasets(value, change) for value in form]
    return form


_DECIDES = ("column_mapping", "default_values", "deletion_files", "pre_slice", "projection")
"""What may change what a scan gives, beyond its files."""


def _native(form: Any) -> Any | None:
    """Return the native scan that a table format stands for, or None if there is none that is exact."""
    asked = form["Scan"]["unified_scan_args"]
    if any(asked[name] is not None for name in (*_DECIDES, "include_file_paths")):
        return None
    dataset = dataset_of(form)
    kind = _KINDS.get(type(dataset).__module__)
    scan = None if kind is None else kind(dataset)
    if scan is None:
        return None
    made, row_index = serialize_plan(scan), asked["row_index"]
    if "Scan" not in made:  # a table without files
        return made if row_index is None else None
    value = made["Scan"]
    if any(value["unified_scan_args"][name] is not None for name in _DECIDES):
        return None
    native = {**value, "unified_scan_args": {**value["unified_scan_args"], "row_index": row_index}}
    names = pl.Schema(dataset.schema()).names()
    if row_index is not None:
        names.insert(0, row_index["name"])
    return serialize_plan(deserialize_plan({"Scan": native}).select(names))


def _delta_scan(dataset: Any) -> pl.LazyFrame | None:
    """Return the scan of a Delta table's files, or None if it would not give exactly the table's rows."""
    table, schema = dataset.table(), dataset.schema()
    if dataset.use_pyarrow or _deletes_rows(table):
        return None
    paths = table.file_uris()
    if not paths:
        return pl.LazyFrame(schema=schema)
    scan, _ = dataset.to_dataset_scan()
    # A rank may begin at a file that lacks a column of the table: the table says what there is, not the first file.
    partitioned = set(table.metadata().partition_columns)
    in_files = {name: dtype for name, dtype in schema.items() if name not in partitioned}
    if not in_files:
        return None
    value = serialize_plan(scan)["Scan"]
    with_schema = serialize_plan(pl.scan_parquet(paths[0], schema=in_files))["Scan"]["scan_type"]["Parquet"]
    reader = value["scan_type"]["Parquet"]
    reader = {**reader, "options": {**reader["options"], "schema": with_schema["options"]["schema"]}}
    return deserialize_plan({"Scan": {**value, "scan_type": {"Parquet": reader}}})


def _deletes_rows(table: Any) -> bool:
    """Whether the table has rows in its files that are deleted."""
    features = table.protocol().reader_features
    return (
        bool(features) and "deletionVectors" in features and len(pl.DataFrame(table.deletion_vectors())) > 0
    )


_KINDS: Mapping[str, Callable[[Any], pl.LazyFrame | None]] = {
    "polars.io.delta._dataset": _delta_scan,
    "polars.io.iceberg._dataset": native_scan,
}
"""By the module of Polars' object for a table."""

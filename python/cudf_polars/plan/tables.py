"""Table formats become native scans where these give exactly the table's rows, so that ranks can share the files.

A Delta table is a list of Parquet files, and values of partition columns in their paths. What is more than that
(deletion vectors, readers by pyarrow, Iceberg's rules for columns) is read by Polars' own way, by one rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from cudf_polars.plan.datasets import dataset_of, is_dataset
from cudf_polars.plan.substitute import deserialize_plan, serialize_plan

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


_DECIDES = ("column_mapping", "default_values", "deletion_files", "row_index", "pre_slice", "projection")
"""What may change which rows a scan gives, beyond its files."""


def _native(form: Any) -> Any | None:
    """Return the native scan that a table format stands for, or None if there is none that is exact."""
    asked = form["Scan"]["unified_scan_args"]
    if any(asked[name] is not None for name in (*_DECIDES, "include_file_paths")):
        return None
    dataset = dataset_of(form)
    if type(dataset).__module__ != "polars.io.delta._dataset" or dataset.use_pyarrow:
        return None
    if _deletes_rows(dataset.table()):
        return None
    schema = dataset.schema()
    paths = dataset.table().file_uris()
    if not paths:
        return serialize_plan(pl.LazyFrame(schema=schema))
    scan, _ = dataset.to_dataset_scan()
    native = serialize_plan(scan)
    value = native["Scan"]
    if "Parquet" not in value["scan_type"]:
        return None
    if any(value["unified_scan_args"][name] is not None for name in _DECIDES):
        return None
    # A rank may begin at a file that lacks a column of the table: the table says what there is, not the first file.
    partitioned = set(dataset.table().metadata().partition_columns)
    in_files = {name: dtype for name, dtype in schema.items() if name not in partitioned}
    if not in_files:
        return None
    with_schema = serialize_plan(pl.scan_parquet(paths[0], schema=in_files))["Scan"]["scan_type"]
    options = {**value["scan_type"]["Parquet"]["options"]}
    options["schema"] = with_schema["Parquet"]["options"]["schema"]
    native = {
        "Scan": {**value, "scan_type": {"Parquet": {**value["scan_type"]["Parquet"], "options": options}}}
    }
    return serialize_plan(deserialize_plan(native).select(schema.names()))


def _deletes_rows(table: Any) -> bool:
    """Whether the table has rows in its files that are deleted."""
    features = table.protocol().reader_features
    return (
        bool(features) and "deletionVectors" in features and len(pl.DataFrame(table.deletion_vectors())) > 0
    )

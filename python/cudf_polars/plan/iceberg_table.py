"""Iceberg tables whose files can be read by the names of their columns.

Iceberg finds the columns of a file by numbers, so that they can be renamed, and may add defaults and take rows away.
Where none of that is in use, the table's rows are those of its files.
"""

from __future__ import annotations

from typing import Any

import polars as pl

__all__ = ["native_scan"]

_ID = b"PARQUET:field_id"
_LOCAL = "file://"


def native_scan(dataset: Any) -> pl.LazyFrame | None:
    """Return the scan of a table's files, or None if it would not give exactly the table's rows.

    Parameters
    ----------
    dataset
        Polars' own object for the table.
    """
    found = dataset._to_dataset_scan_impl()
    if type(found).__name__ != "_NativeIcebergScanData":
        return None
    if (
        found.position_delete_files
        or found.deletion_vectors
        or any(found.default_values)
        or found.name_mapping
    ):
        return None
    schema = pl.Schema(dataset.schema())
    paths = [path.removeprefix(_LOCAL) for path in found.sources]
    if not paths:
        return pl.LazyFrame(schema=schema)
    if not all(path.startswith("/") and _reads_by_name(path, found.column_mapping) for path in paths):
        return None
    return pl.scan_parquet(
        paths,
        schema=dict(schema),
        glob=False,
        hive_partitioning=False,
        cast_options=pl.ScanCastOptions._default_iceberg(),
        missing_columns="insert",
        extra_columns="ignore",
    )


def _reads_by_name(path: str, table: Any) -> bool:
    """Whether each column of the file has, at every level, the name that its number has in the table."""
    import pyarrow.parquet as pq

    return _same_names(list(pq.read_schema(path)), list(table))


def _same_names(of_file: list[Any], of_table: list[Any]) -> bool:
    """Compare fields of one level, of Arrow."""
    by_id = {_id(field): field for field in of_table}
    by_name = {field.name: field for field in of_table}
    if None in by_id or len(by_name) < len(of_table):
        return False
    for field in of_file:
        number = _id(field)
        there = by_id.get(number)
        if number is None or by_name.get(field.name) is not there:
            return False
        if there is not None and not _same_parts(field.type, there.type):
            return False
    return True


def _same_parts(of_file: Any, of_table: Any) -> bool:
    import pyarrow.types as kinds

    if kinds.is_struct(of_table):
        return kinds.is_struct(of_file) and _same_names(list(of_file), list(of_table))
    if kinds.is_map(of_table) or kinds.is_map(of_file):
        return False
    if kinds.is_list(of_table) or kinds.is_large_list(of_table):
        # The element has a number, and no name that matters.
        is_list = kinds.is_list(of_file) or kinds.is_large_list(of_file)
        return is_list and _same_parts(of_file.value_type, of_table.value_type)
    return not kinds.is_nested(of_file)


def _id(field: Any) -> bytes | None:
    number: bytes | None = (field.metadata or {}).get(_ID)
    return number

"""Counts and sums by direct addressing: where keys are integers that lie close together, a group's key is its place.

An array has a place for each value from the least key to the greatest. To add a row there takes a fraction of the time
that it takes in a hash table, and less memory if most values are keys.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cudf_polars.execute.key_table import bounds, distance
from cudf_polars.lower.physical import Schema
from cudf_polars.lower.tallies import Tallies

__all__ = ["direct_groups"]

_EXACT = 2**53
"""Integers up to this are exact as floats, which numpy sums them as."""


def direct_groups(rows: pl.DataFrame, tallies: Tallies, schema: Schema) -> pl.DataFrame | None:
    """Return the groups of some rows, in the order of their keys.

    Parameters
    ----------
    rows
        What the tallies take; the key comes first.
    schema
        Of the result.

    Returns
    -------
    ``None`` if the keys are too far apart for so many rows, or if sums of integers are not sure to be exact.
    """
    key = rows.to_series()
    physical = key.to_physical()
    if physical.null_count() == physical.len():
        return None
    least, greatest = bounds(physical)
    width = greatest - least + 1
    if width > rows.height:
        return None
    summed = {column for how, column in tallies.aggregates.values() if how == "sum"}
    weights = {column: _weights(rows[column]) for column in summed if column is not None}
    if any(each is None for each in weights.values()):
        return None
    # Null has a place of its own, behind the others.
    slots = distance(physical, least).fill_null(width).cast(pl.Int64).to_numpy()
    rows_of = np.bincount(slots, minlength=width + 1)
    places = np.flatnonzero(rows_of)
    columns = [_keys(places, least, width, physical.dtype).cast(key.dtype).alias(key.name)]
    for name, (how, source) in tallies.aggregates.items():
        found = rows_of
        if how == "sum":
            found = np.bincount(slots, weights=weights[str(source)], minlength=width + 1)
        elif how == "count" and rows[str(source)].null_count():
            found = rows_of - np.bincount(slots[rows[str(source)].is_null().to_numpy()], minlength=width + 1)
        column, result = pl.Series(name, found[places]), schema[name]
        if result.is_integer():
            # Polars' sums wrap, too.
            column = column.cast(pl.Int64).cast(result, wrap_numerical=True)
        columns.append(column)
    return pl.DataFrame(columns)


def _keys(places: np.ndarray, least: int, width: int, dtype: pl.DataType) -> pl.Series:
    """Return the keys of places; the one behind the others is of null."""
    offsets = pl.Series(places).cast(pl.UInt64 if dtype == pl.UInt64 else pl.Int64)
    keys = (offsets + least).set(offsets == width, None)
    return keys.cast(dtype)


def _weights(values: pl.Series) -> np.ndarray | None:
    """Return what is summed, null as nothing; ``None`` if sums of the values are not sure to be exact."""
    if values.dtype.is_integer() and values.null_count() < values.len():
        least, greatest = bounds(values)
        if max(-least, greatest) * values.len() >= _EXACT:
            return None
    return values.cast(pl.Float64).fill_null(0.0).to_numpy()

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
"""Float64 represents all integers up to this one exactly; ``numpy.bincount`` sums in Float64."""
_ROWS_AT_ONCE = 1 << 18
"""Rows that are added in one step: with few columns, what is computed from them fits the processor's L2 cache."""
_ROWS = "__rr_rows"
"""The number of rows, among the aggregates."""


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
    if not _sums_are_exact(rows, tallies):
        return None
    totals = _totals(rows, physical, least, width, tallies)
    places = np.flatnonzero(totals[_ROWS])
    columns = [_keys(places, least, width, physical.dtype).cast(key.dtype).alias(key.name)]
    for name, (how, _) in tallies.aggregates.items():
        found = totals[_ROWS if how == "rows" else name]
        column, result = pl.Series(name, found[places]), schema[name]
        if result.is_integer():
            # Polars' sums wrap, too.
            column = column.cast(pl.Int64).cast(result, wrap_numerical=True)
        columns.append(column)
    return pl.DataFrame(columns)


def _sums_are_exact(rows: pl.DataFrame, tallies: Tallies) -> bool:
    """Whether no sum of integers may leave those that floats have."""
    for how, column in tallies.aggregates.values():
        if how == "sum" and (values := rows[str(column)]).dtype.is_integer():
            if values.null_count() == values.len():
                continue
            least, greatest = bounds(values)
            if max(-least, greatest) * values.len() >= _EXACT:
                return False
    return True


def _totals(
    rows: pl.DataFrame, keys: pl.Series, least: int, width: int, tallies: Tallies
) -> dict[str, np.ndarray]:
    """Return counts and sums by place, by name; of the rows under ``_ROWS``. Null has the last place.

    Some rows are taken at a time, so that what is computed from them stays in the cache of the processor; never fewer
    than there are places, which are all added each time.
    """
    step = max(_ROWS_AT_ONCE, width)
    totals: dict[str, np.ndarray] = {}
    for at in range(0, rows.height, step):
        slots = distance(keys.slice(at, step), least).fill_null(width).cast(pl.Int64).to_numpy()
        counted = np.bincount(slots, minlength=width + 1)
        _add(totals, _ROWS, counted)
        for name, (how, column) in tallies.aggregates.items():
            if column is None:
                continue
            values = rows[column].slice(at, step)
            if how == "sum":
                weights = values.cast(pl.Float64).fill_null(0.0).to_numpy()
                _add(totals, name, np.bincount(slots, weights=weights, minlength=width + 1))
            elif values.null_count():
                nulls = slots[values.is_null().to_numpy()]
                _add(totals, name, counted - np.bincount(nulls, minlength=width + 1))
            else:
                _add(totals, name, counted)
    return totals


def _add(totals: dict[str, np.ndarray], name: str, found: np.ndarray) -> None:
    if name in totals:
        totals[name] += found
    else:
        totals[name] = found.copy()


def _keys(places: np.ndarray, least: int, width: int, dtype: pl.DataType) -> pl.Series:
    """Return the keys of places; the one behind the others is of null."""
    offsets = pl.Series(places).cast(pl.UInt64 if dtype == pl.UInt64 else pl.Int64)
    keys = (offsets + least).set(offsets == width, None)
    return keys.cast(dtype)

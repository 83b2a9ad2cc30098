"""Rows by their keys: which are equal, which match, and in what order they are sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from cudf_polars.execute.gpu.program import TypeId
from support.cudf_emulator.columns import FLOATS, Array, Values, concatenate

__all__ = ["codes_of", "ordered_codes", "pairs_of", "row_codes"]


def codes_of(column: Values) -> Array:
    """Number the values of a column: equal ones alike, from 0; null is -1.

    All NaNs are equal, and so are both zeros, as in libcudf's comparisons of rows.
    """
    if len(column) == 0:
        return np.zeros(0, dtype=np.int64)
    codes = ordered_codes(column)
    codes[~column.valid] = -1
    return codes


def ordered_codes(column: Values) -> Array:
    """Number the values of a column in their order, NaN last; of nulls the number is of no meaning."""
    data, valid = column.data, column.valid
    if column.type.id in (TypeId.LIST, TypeId.STRUCT):
        raise TypeError(f"keys of {column.type.id.name} are not emulated")
    if not valid.all():
        if not valid.any():
            return np.zeros(len(column), dtype=np.int64)
        data = np.where(valid, data, data[valid][0])
    if column.type.id is TypeId.STRING:
        texts = pl.Series(data.tolist(), dtype=pl.String)
        return _signed(texts.rank("dense").to_numpy()) - 1
    if column.type.id in FLOATS:
        data = data + np.zeros(1, dtype=data.dtype)  # -0.0 becomes 0.0
    _, codes = np.unique(data, return_inverse=True)  # one NaN of all
    return _signed(codes)


def _signed(codes: Array) -> Array:
    return codes.astype(np.int64)


def row_codes(columns: Sequence[Values], rows: int, *, nulls_equal: bool = True) -> Array:
    """Number rows by their keys: equal ones alike; -1 if a key is null and nulls are not equal to each other."""
    whole = np.zeros(rows, dtype=np.int64)
    some_null = np.zeros(rows, dtype=np.bool_)
    for column in columns:
        codes = codes_of(column)
        some_null |= codes < 0
        width = int(codes.max(initial=0)) + 2
        _, dense = np.unique(whole * width + codes + 1, return_inverse=True)
        whole = _signed(dense)
    if not nulls_equal:
        whole[some_null] = -1
    return whole


def pairs_of(
    left: Sequence[Values], right: Sequence[Values], rows: tuple[int, int], *, nulls_equal: bool
) -> tuple[Array, Array]:
    """Return the numbers of the rows that match: of the left side, and of the right."""
    both = [concatenate([a, b]) for a, b in zip(left, right, strict=True)]
    codes = row_codes(both, sum(rows), nulls_equal=nulls_equal)
    here, there = codes[: rows[0]], codes[rows[0] :]
    order = np.argsort(there, kind="stable")
    sorted_codes = there[order]
    first = np.searchsorted(sorted_codes, here, side="left")
    last = np.searchsorted(sorted_codes, here, side="right")
    counts = np.where(here < 0, 0, last - first)
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) if rows[0] else first
    places = starts + np.arange(int(counts.sum()))
    return np.repeat(np.arange(rows[0]), counts), order[places]

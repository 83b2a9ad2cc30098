"""Says whether two answers to one query are the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import polars.selectors as cs

RELATIVE_TOLERANCE = 1e-9
"""Floats may differ by this much of their size: sums are added up in different orders."""

_TIES = "__ties__"


def difference(ours: pl.DataFrame, expected: pl.DataFrame, order: Sequence[str] = ()) -> str | None:
    """Describe the first difference between two answers.

    Parameters
    ----------
    ours, expected
        The answers. Everything is compared exactly, but floats to ``RELATIVE_TOLERANCE``.
    order
        The columns by which the query sorts. They must agree row by row; rows that are equal in
        all of them may come in any order. If empty, rows may come in any order.

    Returns
    -------
    str or None
        What differs, or None where the answers are equal.
    """
    if ours.schema != expected.schema:
        return f"schema {dict(ours.schema)} instead of {dict(expected.schema)}"
    if ours.height != expected.height:
        return f"{ours.height} rows instead of {expected.height}"
    for name in order:
        if found := _column_difference(ours[name], expected[name], "in the sort column"):
            return found
    ties = _ties(expected, order)
    # Rows of a tie are brought into one order by their exact columns first: a float that differs in
    # its last bit must not part two rows that are the same.
    names = [_TIES, *expected.select(~cs.float()).columns, *expected.select(cs.float()).columns]
    ours = ours.with_columns(ties).sort(names, maintain_order=True)
    expected = expected.with_columns(ties).sort(names, maintain_order=True)
    for name in expected.columns:
        if found := _column_difference(ours[name], expected[name], "in column"):
            return found
    return None


def _ties(expected: pl.DataFrame, order: Sequence[str]) -> pl.Series:
    """Number the runs of rows that are equal in the sort columns."""
    if not order or expected.height == 0:
        return pl.Series(_TIES, [0] * expected.height, dtype=pl.UInt32)
    starts = pl.Series([False] * expected.height)
    for name in order:
        column = expected[name]
        starts = starts | ~_equal(column, column.shift(1))
    return starts.cast(pl.UInt32).cum_sum().alias(_TIES)


def _equal(left: pl.Series, right: pl.Series) -> pl.Series:
    exact = left.eq_missing(right)
    if not left.dtype.is_float():
        return exact
    size = pl.DataFrame({"l": left.abs(), "r": right.abs()}).max_horizontal()
    close = ((left - right).abs() <= RELATIVE_TOLERANCE * size) & size.is_finite()
    return exact | close.fill_null(value=False)


def _column_difference(ours: pl.Series, expected: pl.Series, where: str) -> str | None:
    equal = _equal(ours, expected)
    if equal.all():
        return None
    row = int((~equal).arg_true()[0])
    return f"{where} {expected.name!r}, row {row}: {ours[row]!r} instead of {expected[row]!r}"

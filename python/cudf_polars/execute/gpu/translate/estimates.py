"""Rough numbers of rows: they choose which side of a join becomes the hash table."""

from __future__ import annotations

import polars as pl

from cudf_polars.lower.estimates import AGGREGATED, FILTERED
from cudf_polars.plan import expressions as ex

__all__ = ["AGGREGATED", "kept_by", "rows_of_join"]

_EQUAL = 0.05
_TEXT_FOUND = 0.1


def kept_by(predicate: ex.Expr) -> float:
    """Return the part of rows that a predicate may keep."""
    match predicate:
        case ex.BinaryOp(op=ex.Operator.AND):
            return kept_by(predicate.left) * kept_by(predicate.right)
        case ex.BinaryOp(op=ex.Operator.OR):
            return min(1.0, kept_by(predicate.left) + kept_by(predicate.right))
        case ex.BinaryOp(op=ex.Operator.EQ):
            return _EQUAL
        case ex.BinaryOp(op=ex.Operator.NE):
            return 1.0 - _EQUAL
        case ex.Function(name="not_"):
            return 1.0 - kept_by(predicate.inputs[0])
        case ex.Function(name="is_in"):
            return min(1.0, _EQUAL * _values_of(predicate.inputs[1]))
        case ex.Function(name="str.contains" | "str.starts_with" | "str.ends_with"):
            return _TEXT_FOUND
        case _:
            return FILTERED


def _values_of(haystack: ex.Expr) -> int:
    if isinstance(haystack, ex.Literal) and isinstance(haystack.value, ex.FrozenSeries):
        series = haystack.value.series
        if isinstance(series.dtype, pl.List) and len(series) == 1:
            return int(series.list.len().item() or 0)
        return len(series)
    return 5


def rows_of_join(large: tuple[float, float], small: tuple[float, float]) -> float:
    """Return the rows of an inner join, as if the smaller table had the key once.

    Parameters
    ----------
    large, small
        The rows of a side, and how many there would be without filters.
    """
    rows, table = small
    return large[0] * min(1.0, rows / max(1.0, table))

"""Rough sizes of streams before they run. They only choose what to measure first; sizes that decide are counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

__all__ = ["AGGREGATED", "FILTERED", "GroupCount", "row_width"]

FILTERED = 0.25
"""The estimated part of rows that a predicate keeps."""
AGGREGATED = 0.1
"""Groups per row."""

_TEXT_BYTES = 24.0
_SELDOM = 0.005
"""Two samples that share no larger part of their keys say nothing: rows are sorted by key, or keys are very many."""
_UNIFORM = 1.2
"""For keys that are equally frequent, once * thrice / twice² is 2/3."""


@dataclass(frozen=True)
class GroupCount:
    """How many groups rows have, as two samples say that lie apart from each other; means of the ranks'.

    Attributes
    ----------
    rows
        Rows of both samples.
    first, second, both
        Groups of each, and of both together.
    once, twice, thrice
        Groups that have so many rows in both together.
    """

    rows: float
    first: float
    second: float
    both: float
    once: float
    twice: float
    thrice: float

    def groups(self, rows: float) -> float:
        """Return about how many groups so many rows of any part of the table have, or more than that."""
        if rows <= self.rows or not self.rows:
            return rows * self.both / max(self.rows, 1)
        met_again = self.first + self.second - self.both
        if met_again <= _SELDOM * min(self.first, self.second):
            # The rows are in the order of their keys, or there are very many.
            return rows * self.both / self.rows
        if self.once * self.thrice > _UNIFORM * self.twice**2:
            # Some keys are more frequent than others: how many seldom ones there are is not known. The part of the rows
            # with a key that is in no other row is the probability that the next row has a new one.
            return self.both + (rows - self.rows) * self.once / self.rows
        # As one estimates how many fish are in a pond: of those marked, how many are caught again.
        groups = self.first * self.second / met_again
        return max(self.both, groups * -math.expm1(-rows / groups))

    def per_row(self, rows: float) -> float:
        """Return the same for each row."""
        return self.groups(rows) / rows if rows else 0.0


def row_width(schema: Mapping[str, pl.DataType]) -> float:
    """Return the estimated number of bytes of a row."""
    return max(1.0, _total(schema.values()))


def _total(dtypes: Iterable[pl.DataType]) -> float:
    return sum(_width(dtype) for dtype in dtypes)


def _width(dtype: pl.DataType) -> float:
    match dtype:
        case pl.Boolean() | pl.Int8() | pl.UInt8():
            return 1.0
        case pl.Int16() | pl.UInt16():
            return 2.0
        case pl.Int32() | pl.UInt32() | pl.Float32() | pl.Date() | pl.Categorical() | pl.Enum():
            return 4.0
        case pl.Decimal() | pl.Int128():
            return 16.0
        case pl.String() | pl.Binary():
            return _TEXT_BYTES
        case pl.List():
            return 8.0 + 4.0 * _width(_instance(dtype.inner))
        case pl.Array():
            return float(dtype.size) * _width(_instance(dtype.inner))
        case pl.Struct():
            return _total(_instance(f.dtype) for f in dtype.fields)
        case pl.Null():
            return 0.0
        case _:
            return 8.0


def _instance(dtype: object) -> pl.DataType:
    """Return the type that ``dtype``, a type or its class, stands for."""
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made

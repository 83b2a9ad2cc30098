"""Aggregates that are counts and sums, by one key that is an integer.

Execution may compute them by arrays, without a hash table: :mod:`cudf_polars.execute.direct_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from cudf_polars.plan.expressions import Expr, NamedExpr
from cudf_polars.plan.properties import columns, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["INTEGER_KEYS", "Tallies", "Tally"]

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_SUMMED = (*_INTEGERS, pl.Float64)
INTEGER_KEYS = (*_INTEGERS, pl.Date, pl.Datetime, pl.Duration)
"""Types whose values are integers of at most 64 bits, or points and spans of time that are kept as such."""


@dataclass(frozen=True)
class Tally:
    """An aggregate that is a count or a sum.

    Attributes
    ----------
    how
        What is counted, rows or values that are not null, or summed.
    source
        The values, row by row; of rows, any.
    values
        The same for Polars, in the type that is summed.
    dtype
        That type.
    """

    how: Literal["rows", "count", "sum"]
    source: Expr
    values: pl.Expr
    dtype: pl.DataType | None = None

    @property
    def is_direct(self) -> bool:
        """Whether each row has a value of its own, and a sum is one of numbers that arrays of floats can take."""
        if self.how == "rows":
            return True
        is_of_rows = is_elementwise(self.source) and bool(columns(self.source))
        return is_of_rows and (self.how == "count" or self.dtype in _SUMMED)


@dataclass(frozen=True)
class Tallies:
    """The aggregates of groups, all of them counts and sums, by one key.

    Attributes
    ----------
    taken
        What they are computed from, row by row: the key comes first, under its name in the result.
    aggregates
        By name in the result: what is done, and with which column of ``taken``; None: with the rows.
    """

    taken: tuple[pl.Expr, ...]
    aggregates: Mapping[str, tuple[Literal["rows", "count", "sum"], str | None]]

    @classmethod
    def of(cls, keys: Sequence[NamedExpr], aggregates: Mapping[str, Tally | None]) -> Tallies | None:
        """Return a group-by's aggregates, by name, as tallies; ``None`` if a part of it is anything else."""
        if len(keys) != 1 or keys[0].expr.dtype not in INTEGER_KEYS or not columns(keys[0].expr):
            return None
        taken = [to_expr(keys[0].expr).alias(keys[0].name)]
        found: dict[Expr, str] = {}
        named: dict[str, tuple[Literal["rows", "count", "sum"], str | None]] = {}
        # Sums first: values are null where they are null in the type that is summed.
        for name, tally in sorted(
            aggregates.items(), key=lambda item: item[1] is None or item[1].how != "sum"
        ):
            if tally is None or not tally.is_direct:
                return None
            if tally.how == "rows":
                named[name] = ("rows", None)
                continue
            if tally.how == "sum" or tally.source not in found:
                found[tally.source] = name
                taken.append(tally.values.alias(name))
            named[name] = (tally.how, found[tally.source])
        return cls(tuple(taken), {name: named[name] for name in aggregates})

    def values(self, frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        """Take what is aggregated from rows."""
        return frames[0].select(self.taken)

    def groups(self, frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        """Aggregate what was taken."""
        aggregates = [_aggregate(how, column).alias(name) for name, (how, column) in self.aggregates.items()]
        return frames[0].group_by(self.taken[0].meta.output_name()).agg(aggregates)


def _aggregate(how: str, column: str | None) -> pl.Expr:
    if column is None:
        return pl.len()
    return pl.col(column).sum() if how == "sum" else pl.col(column).count()

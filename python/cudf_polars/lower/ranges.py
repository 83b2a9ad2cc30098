"""Where a row goes in a range exchange: comparing sort keys with boundary rows, as Polars sorts.

Keys are compared column by column, so that only public comparisons of Polars are used. Types whose comparison
is not their sort order are mapped to one whose is; the rest (nested types) cannot lead a range exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from cudf_polars.lower.physical import SortKey

__all__ = ["boundary_frame", "comparable", "destination", "is_comparable", "key_columns"]


def is_comparable(dtype: pl.DataType) -> bool:
    """Whether rows can be sent by ranges of a column of type ``dtype``."""
    return not dtype.is_nested() and not dtype.is_object() and dtype != pl.Null and dtype != pl.Unknown


def comparable(column: str, dtype: pl.DataType) -> pl.Expr:
    """Return ``column`` in a type with a public total order equal to its sort order."""
    expr = pl.col(column)
    if isinstance(dtype, pl.Categorical):
        return expr.cast(pl.String)
    if isinstance(dtype, pl.Enum) or dtype.is_temporal():
        return expr.to_physical()
    if dtype == pl.Boolean:
        return expr.cast(pl.UInt8)
    return expr


def _usable(keys: Sequence[SortKey], schema: Mapping[str, pl.DataType]) -> list[SortKey]:
    """Return the leading keys that can be compared; rows that tie in them go to one rank."""
    usable = []
    for key in keys:
        if not is_comparable(schema[key.column]):
            break
        usable.append(key)
    return usable


def key_columns(keys: Sequence[SortKey], schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return the expressions of the sample that boundaries are taken from, named ``0``, ``1``, ..."""
    usable = enumerate(_usable(keys, schema))
    return [comparable(key.column, schema[key.column]).alias(str(i)) for i, key in usable]


def boundary_frame(sample: pl.DataFrame, keys: Sequence[SortKey], weight: str, parts: int) -> pl.DataFrame:
    """Return at most ``parts - 1`` distinct rows that split ``sample`` into ``parts`` of equal weight."""
    columns = [name for name in sample.columns if name != weight]
    chosen = [keys[int(name)] for name in columns]
    ordered = sample.sort(
        columns,
        descending=[key.descending for key in chosen],
        nulls_last=[key.nulls_last for key in chosen],
        maintain_order=True,
    )
    total = float(ordered[weight].sum())
    cumulative = ordered[weight].cum_sum()
    # Float rows: the first row of each part, by weight.
    picks = [int((cumulative <= total * part / parts).sum()) for part in range(1, parts)]
    rows = ordered.select(columns)[[pick for pick in picks if pick < ordered.height]]
    return rows.unique(maintain_order=True)


def destination(
    keys: Sequence[SortKey], boundaries: pl.DataFrame, schema: Mapping[str, pl.DataType]
) -> pl.Expr:
    """Return the rank of a row (UInt32): the number of boundaries that do not sort after it."""
    usable = _usable(keys, schema)
    columns = [comparable(key.column, schema[key.column]) for key in usable]
    target = pl.lit(0, dtype=pl.UInt32)
    for i in range(boundaries.height):
        literals = [pl.lit(boundaries[i, j], dtype=boundaries.dtypes[j]) for j in range(len(usable))]
        target = target + _not_before(columns, literals, usable, boundaries.row(i)).cast(pl.UInt32)
    return target


def _not_before(
    columns: Sequence[pl.Expr], literals: Sequence[pl.Expr], keys: Sequence[SortKey], values: Sequence[object]
) -> pl.Expr:
    """Return whether the row's keys equal the boundary or sort after it; never null."""
    result = pl.lit(True)
    for column, literal, key, value in reversed(list(zip(columns, literals, keys, values, strict=True))):
        if value is None:
            equal = column.is_null()
            after = pl.lit(False) if key.nulls_last else column.is_not_null()
        else:
            equal = (column == literal).fill_null(False)
            after = ((column < literal) if key.descending else (column > literal)).fill_null(key.nulls_last)
        result = after | (equal & result)
    return result

"""Where a row goes in a range exchange: comparing sort keys with boundary rows, as Polars sorts.

Keys are compared column by column, so that only public comparisons of Polars are used. Types whose comparison
is not their sort order are mapped to one whose is; the rest (nested types) cannot lead a range exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from cudf_polars.lower.physical import SortKey

__all__ = ["boundary_frame", "comparable", "destination", "is_comparable", "key_columns", "range_of"]

_HEAVIEST, _HEAVIEST_OF_MANY, _MANY = 0.25, 1.0, 32
"""Of the weight of a part: where no values of the leading keys have more, boundaries do without the other keys. Of many
parts, one may be twice as large as another.
"""
_MOST_OF_A_BYTE = 255


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
    """Return at most ``parts - 1`` distinct rows that split ``sample`` into ``parts`` of about equal weight.

    They have the leading keys only, where these are enough: what each row is compared with is less then.
    """
    total = float(sample[weight].sum())
    columns: list[str] = []
    for name in sample.columns:
        if name == weight:
            continue
        columns.append(name)
        heaviest = (
            sample.group_by(columns)
            .agg(pl.col(weight).sum())
            .select(pl.col(weight).max().fill_null(0))
            .item()
        )
        if float(heaviest) * parts <= (_HEAVIEST if parts < _MANY else _HEAVIEST_OF_MANY) * total:
            break
    chosen = [keys[int(name)] for name in columns]
    ordered = sample.sort(
        columns,
        descending=[key.descending for key in chosen],
        nulls_last=[key.nulls_last for key in chosen],
        maintain_order=True,
    )
    cumulative = ordered[weight].cum_sum()
    # Float rows: the first row of each part, by weight.
    picks = [int((cumulative <= total * part / parts).sum()) for part in range(1, parts)]
    rows = ordered.select(columns)[[pick for pick in picks if pick < ordered.height]]
    return rows.unique(maintain_order=True)


def destination(
    keys: Sequence[SortKey],
    boundaries: pl.DataFrame,
    schema: Mapping[str, pl.DataType],
    *,
    by_search: bool = False,
) -> pl.Expr:
    """Return the rank of a row (UInt32): the number of boundaries that do not sort after it.

    Parameters
    ----------
    by_search
        Whether boundaries of one key may be searched, which takes a sixth of the time of comparing a row with each of
        a hundred; GPUs compare.
    """
    usable = _usable(keys, schema)[: boundaries.width]
    columns = [comparable(key.column, schema[key.column]) for key in usable]
    if by_search and len(usable) == 1 and boundaries.height:
        return _searched(columns[0], usable[0], boundaries.to_series())
    passed = []
    for i in range(boundaries.height):
        literals = [pl.lit(boundaries[i, j], dtype=boundaries.dtypes[j]) for j in range(len(usable))]
        passed.append(_not_before(columns, literals, usable, boundaries.row(i)).cast(pl.UInt8))
    target = pl.lit(0, dtype=pl.UInt32)
    for first in range(0, len(passed), _MOST_OF_A_BYTE):
        # Sums of bytes take a quarter of the memory traffic of such of UInt32.
        part = passed[first : first + _MOST_OF_A_BYTE]
        target = target + _sum(part).cast(pl.UInt32)
    return target


def _sum(terms: Sequence[pl.Expr]) -> pl.Expr:
    """Return a sum as a tree of little depth: for one of hundreds of levels Polars takes seconds to find its type."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return _sum(terms[:middle]) + _sum(terms[middle:])


def range_of(column: str, boundaries: Sequence[object], schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return the number of the range that a value of ``column`` is in (UInt32), 0 for null.

    Parameters
    ----------
    boundaries
        The first value of each range but the first one's, ascending; two may be the same.
    """
    firsts = pl.Series("0", boundaries, dtype=schema[column]).to_frame()
    key = SortKey(column, descending=False, nulls_last=False)
    return destination([key], firsts.select(comparable("0", schema[column])), schema, by_search=True)


def _searched(column: pl.Expr, key: SortKey, boundaries: pl.Series) -> pl.Expr:
    """Return how many boundaries do not sort after a value; one of them may be null."""
    values = boundaries.drop_nulls().sort()
    # Nulls that sort first pass all values; those that sort last are passed by nulls only.
    null_passed = int(boundaries.null_count() > 0)
    if key.descending:
        passed = values.len() - column.bin_intervals(values, labels=False, right_closed=True)
    else:
        passed = column.bin_intervals(values, labels=False)
    if key.nulls_last:
        return passed.fill_null(values.len() + null_passed).cast(pl.UInt32)
    return (passed.fill_null(0) + null_passed).cast(pl.UInt32)


def _not_before(
    columns: Sequence[pl.Expr], literals: Sequence[pl.Expr], keys: Sequence[SortKey], values: Sequence[object]
) -> pl.Expr:
    """Return whether the row's keys equal the boundary or sort after it; never null."""
    result: pl.Expr | None = None
    for column, literal, key, value in reversed(list(zip(columns, literals, keys, values, strict=True))):
        if value is None:
            equal = column.is_null()
            after = pl.lit(False) if key.nulls_last else column.is_not_null()
            result = after | (equal if result is None else equal & result)
        elif result is None:
            result = ((column <= literal) if key.descending else (column >= literal)).fill_null(
                key.nulls_last
            )
        else:
            equal = (column == literal).fill_null(False)
            after = ((column < literal) if key.descending else (column > literal)).fill_null(key.nulls_last)
            result = after | (equal & result)
    return pl.lit(True) if result is None else result

"""Random frames of typed columns: nulls, NaN, zeros of both signs, infinities, extremes, duplicates, no rows.

A column's name says its type (``Int64 0``). Floats of columns are small multiples of a quarter, so that sums and
products of few of them are exact in whatever order they are made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
from execute.gpu.choices import Choices

__all__ = ["POOLS", "TYPES", "column_name", "frame_of", "name_of"]

INF, NAN = float("inf"), float("nan")
_INTS: dict[str, Sequence[Any]] = {}
for _bits in (8, 16, 32, 64):
    _INTS[f"Int{_bits}"] = (0, 1, -1, 2, 3, 7, -7, 2 ** (_bits - 1) - 1, -(2 ** (_bits - 1)))
    _INTS[f"UInt{_bits}"] = (0, 1, 2, 3, 7, 2**_bits - 1, 2 ** (_bits - 1))
_FLOATS = (0.0, -0.0, 1.0, -1.5, 2.25, 2.5, 0.5, -7.25, NAN, INF, -INF)
_SECONDS = (0, 1, -1, 951_782_400, 1_583_020_799, -86_400 * 365 * 50, 4_102_444_800)

POOLS: Mapping[str, tuple[pl.DataType, Sequence[Any]]] = {
    **{name: (getattr(pl, name)(), values) for name, values in _INTS.items()},
    "Float64": (pl.Float64(), _FLOATS),
    "Float32": (pl.Float32(), _FLOATS),
    "Boolean": (pl.Boolean(), (True, False)),
    "String": (
        pl.String(),
        ("", "a", "A", "ab", "abc", "b a", " ab ", "äb€", "ß", "a.c", "aXb", "12", "-3", "x\ny"),
    ),
    "Date": (
        pl.Date(),
        tuple(
            dt.date(*x)
            for x in (
                (1970, 1, 1),
                (1969, 12, 31),
                (2000, 2, 29),
                (1900, 3, 1),
                (2024, 12, 31),
                (2100, 1, 31),
            )
        ),
    ),
    "Datetime ms": (pl.Datetime("ms"), tuple(s * 1000 + 7 for s in _SECONDS)),
    "Datetime us": (pl.Datetime("us"), tuple(s * 10**6 + 123_456 for s in _SECONDS)),
    "Datetime ns": (pl.Datetime("ns"), tuple(s * 10**9 + 999_999_999 for s in _SECONDS[:-2])),
    "Duration us": (pl.Duration("us"), (0, 1, -1, 86_400 * 10**6, -3_600_000_001, 10**12 + 1)),
    "Duration ms": (pl.Duration("ms"), (0, 1, -1, 86_400_000, -3_600_001)),
    "Decimal 2": (
        pl.Decimal(12, 2),
        tuple(map(Decimal, ("0", "0.01", "-0.01", "1.15", "-1.15", "2.50", "99999.99", "-99999.99"))),
    ),
    "Decimal 4": (pl.Decimal(9, 4), tuple(map(Decimal, ("0", "0.0005", "-0.0005", "1.2345", "-7.0000")))),
}
"""By name of the type: the type and the values that columns draw from, times as ticks."""

TYPES = tuple(POOLS)


def column_name(kind: str, number: int) -> str:
    """Return the name of a column of a type."""
    return f"{kind} {number}"


def name_of(column: str) -> str:
    """Return the type's name of a column."""
    return column.rsplit(" ", 1)[0]


def series_of(name: str, kind: str, places: Sequence[int]) -> pl.Series:
    """Return a column of values by their places in the pool; -1 is null."""
    dtype, pool = POOLS[kind]
    values = [None if place < 0 else pool[place % len(pool)] for place in places]
    if isinstance(dtype, pl.Datetime | pl.Duration):
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    return pl.Series(name, values, dtype=dtype)


_ROWS = (0, 1, 2, 3, 4, 5, 6, 8, 10)
_SPANS = ((-1, 0), (-1, 0), (0, 0), (-1, 2), (0, 2), (0, 1))
"""Whether there are nulls (-1), and how many different values at most; 0: all of the pool."""


def frame_of(choices: Choices, kinds: Sequence[str], *, first: int = 0, each: int = 2) -> pl.DataFrame:
    """Return a frame with some columns of each of these types, numbered from ``first``."""
    rows = choices.pick(*_ROWS)
    columns = []
    for kind in kinds:
        size = len(POOLS[kind][1])
        for number in range(first, first + each):
            low, values = choices.pick(*_SPANS)
            start = choices.below(size) if values else 0
            count = values or size
            places = [choices.below(count - low) + low for _ in range(rows)]
            shifted = [p if p < 0 else p + start for p in places]
            columns.append(series_of(column_name(kind, number), kind, shifted))
    return pl.DataFrame(columns)

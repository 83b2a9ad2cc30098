"""Columns that conformance cases are computed from: nulls, extremes, NaN, zeros of both signs, duplicates."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from cudf_polars.execute.gpu.program import CudfType, TypeId

__all__ = ["DTYPES", "FLOATS", "INTEGERS", "ROWS", "SIGNED", "column", "dtype_of", "type_of"]

T = TypeId
ROWS = 60

SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64)
INTEGERS = (*SIGNED, T.UINT8, T.UINT16, T.UINT32, T.UINT64)
FLOATS = (T.FLOAT32, T.FLOAT64)

DTYPES: dict[TypeId, pl.DataType] = {
    T.INT8: pl.Int8(),
    T.INT16: pl.Int16(),
    T.INT32: pl.Int32(),
    T.INT64: pl.Int64(),
    T.UINT8: pl.UInt8(),
    T.UINT16: pl.UInt16(),
    T.UINT32: pl.UInt32(),
    T.UINT64: pl.UInt64(),
    T.FLOAT32: pl.Float32(),
    T.FLOAT64: pl.Float64(),
    T.BOOL8: pl.Boolean(),
    T.STRING: pl.String(),
    T.TIMESTAMP_DAYS: pl.Date(),
    T.TIMESTAMP_MILLISECONDS: pl.Datetime("ms"),
    T.TIMESTAMP_MICROSECONDS: pl.Datetime("us"),
    T.TIMESTAMP_NANOSECONDS: pl.Datetime("ns"),
    T.DURATION_MILLISECONDS: pl.Duration("ms"),
    T.DURATION_MICROSECONDS: pl.Duration("us"),
    T.DURATION_NANOSECONDS: pl.Duration("ns"),
}
"""The types that come from Polars as they are."""


def dtype_of(type: CudfType) -> pl.DataType:
    """Return the Polars type of what comes back as ``type``."""
    match type.id:
        case T.DECIMAL32 | T.DECIMAL64 | T.DECIMAL128:
            return pl.Decimal(38, -type.scale)
        case T.LIST:
            return pl.List(dtype_of(type.children[0]))
        case T.STRUCT:
            return pl.Struct([pl.Field(str(i), dtype_of(c)) for i, c in enumerate(type.children)])
        case _:
            return DTYPES[type.id]


def type_of(dtype: pl.DataType) -> CudfType:
    """Return the type that a column of the host has on the device."""
    if isinstance(dtype, pl.Decimal):
        return CudfType(T.DECIMAL128, -(dtype.scale or 0))
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        assert isinstance(inner, pl.DataType)
        return CudfType(T.LIST, 0, (type_of(inner),))
    if isinstance(dtype, pl.Struct):
        return CudfType(
            T.STRUCT, 0, tuple(type_of(f.dtype) for f in dtype.fields if isinstance(f.dtype, pl.DataType))
        )
    return CudfType(next(id for id, known in DTYPES.items() if known == dtype))


TEXTS = (
    *(
        "",
        "a",
        "A",
        "ab",
        "abc",
        "ba",
        "Abc",
        " ab ",
        "\ta b\n",
        "aXbXc",
        "a.c",
        "a%b_c",
        "x\ny",
        "0",
        "12",
        "-3",
        "+4",
    ),
    *(
        "1.5",
        "-2e3",
        "7z",
        "é",
        "äb€c",
        "日本語",
        "é€é",
        "forest green",
        "MEDIUM BOX",
        "2020-01-02",
        "1999-12-31",
    ),
)
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    1e-3,
    1e10,
    -1e10,
    float("nan"),
    float("inf"),
    float("-inf"),
)
_SECONDS = (
    0,
    1,
    -1,
    59,
    86_399,
    86_400,
    -86_400,
    951_782_400,
    951_868_799,
    1_583_020_799,
    -2_203_891_200,
    4_102_444_800,
)


def _integers(id: TypeId, rng: random.Random) -> Callable[[], Any]:
    bits = int(id.name.lstrip("UINT"))
    low, high = (0, 2**bits - 1) if id.name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    near = (0, 1, 2, 3, 5, 7, 10, 100, low, low + 1, high, high - 1, *((-1, -2, -7, -100) if low else ()))
    return lambda: rng.choice(near) if rng.random() < 0.8 else rng.randint(low, high)


def _maker(id: TypeId, rng: random.Random) -> Callable[[], Any]:
    name = id.name
    if id in INTEGERS:
        return _integers(id, rng)
    if id in FLOATS:
        return lambda: rng.choice(_FLOATS) if rng.random() < 0.7 else round(rng.uniform(-50, 50) * 8) / 8
    if id is T.BOOL8:
        return lambda: rng.random() < 0.5
    if id is T.STRING:
        return lambda: rng.choice(TEXTS)
    if id is T.TIMESTAMP_DAYS:
        return lambda: rng.choice(_SECONDS) // 86_400 + rng.choice((0, 0, 0, 45, 366, -1))
    per_second = {"MILLISECONDS": 10**3, "MICROSECONDS": 10**6, "NANOSECONDS": 10**9}[name.split("_")[1]]
    if name.startswith("TIMESTAMP"):
        return lambda: rng.choice(_SECONDS) * per_second + rng.choice((0, 1, per_second - 1, per_second // 3))
    return lambda: rng.choice((0, 1, -1, 59, 86_400, -90_000)) * per_second + rng.choice((0, 0, 1, -1))


def column(
    id: TypeId,
    seed: int = 0,
    *,
    rows: int = ROWS,
    nulls: float = 0.2,
    where: Callable[[Any], bool] = lambda _: True,
    values: Sequence[Any] | None = None,
) -> pl.Series:
    """Return a column.

    Parameters
    ----------
    nulls
        The part of the rows that is null.
    where
        Says which values may be there, where not all have a defined result.
    values
        What to choose from, as Polars stores it; by default what is worth a test of the type.
    """
    rng = random.Random(f"{id.name} {seed}")
    make = _maker(id, rng) if values is None else lambda: rng.choice(values)
    made: list[Any] = []
    while len(made) < rows:
        value = None if rng.random() < nulls else make()
        if value is None or where(value):
            made.append(value)
    dtype = DTYPES[id]
    if dtype.is_temporal():
        whole = pl.Int32() if id is T.TIMESTAMP_DAYS else pl.Int64()
        return pl.Series("", made, dtype=whole).cast(dtype)
    return pl.Series("", made, dtype=dtype)


def decimals(
    scale: int, seed: int = 0, *, rows: int = ROWS, nulls: float = 0.2, digits: int = 6
) -> pl.Series:
    """Return a column of decimals with so many digits after the point and at most so many in all."""
    rng = random.Random(f"decimals {scale} {seed}")
    most = 10**digits - 1
    near = (0, 1, -1, 4, 5, 6, -5, 15, 25, -25, 115, most, -most)
    units = [
        None if rng.random() < nulls else rng.choice(near) if rng.random() < 0.7 else rng.randint(-most, most)
        for _ in range(rows)
    ]
    made = [None if u is None else Decimal(u).scaleb(-scale) for u in units]
    return pl.Series("", made, dtype=pl.Decimal(38, scale))

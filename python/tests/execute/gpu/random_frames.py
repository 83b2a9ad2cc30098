"""Random frames of all types that a GPU has, with values at the borders of each."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import string
from collections.abc import Callable
from typing import Any

import polars as pl

__all__ = ["TYPES", "random_frame", "random_series"]

_WORDS = (
    *("", "a", "b", "ab", "aXbXc", "forest green", "MED BOX", "é", "ßx", "日本"),
    *("-5", "+7", "12", "  x ", "x\ny", "%_"),
)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -7.5, 1e300, -1e-300, math.nan, math.inf, -math.inf)
_DAYS = tuple(
    (dt.date(*day) - dt.date(1970, 1, 1)).days
    for day in (
        (1, 1, 1),
        (1900, 3, 31),
        (1969, 12, 31),
        (1970, 1, 1),
        (2000, 2, 29),
        (2001, 1, 1),
        (2020, 12, 31),
    )
)


def _integer(rng: random.Random, low: int, high: int) -> int:
    near = (0, 1, -1, 2, 3, 7, low, high, low + 1, high - 1)
    value = rng.choice(near) if rng.random() < 0.7 else rng.randint(low, high)
    return min(max(value, low), high)


def _bits(bits: int, *, signed: bool) -> Callable[[random.Random], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return lambda rng: _integer(rng, low, high)


def _float(rng: random.Random) -> float:
    return rng.choice(_FLOATS) if rng.random() < 0.6 else rng.uniform(-100, 100)


def _float32(rng: random.Random) -> float:
    value = _float(rng)
    return value if not math.isfinite(value) or abs(value) < 1e30 else 1.5


def _text(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return rng.choice(_WORDS)
    return "".join(rng.choice(string.ascii_letters + "  éß0123-") for _ in range(rng.randrange(8)))


def _day(rng: random.Random) -> int:
    return rng.choice(_DAYS) if rng.random() < 0.5 else rng.randint(-800, 40000)


def _time(ticks: int) -> Callable[[random.Random], int]:
    def one(rng: random.Random) -> int:
        day = _day(rng) if ticks < 10**9 else rng.randint(-50000, 50000)
        return day * 86400 * ticks + rng.choice(
            (0, 1, -1, ticks, 3600 * ticks + 7, rng.randrange(86400 * ticks))
        )

    return one


def _span(rng: random.Random) -> int:
    return rng.choice((0, 1, -1, 86400 * 10**6, -36 * 3600 * 10**6, 1999, rng.randint(-(10**12), 10**12)))


def _money(rng: random.Random) -> decimal.Decimal:
    return decimal.Decimal(rng.choice((0, 5, -5, 15, 25, 105, -115, rng.randint(-(10**8), 10**8)))).scaleb(-2)


TYPES: dict[str, tuple[pl.DataType, Callable[[random.Random], Any]]] = {
    "i8": (pl.Int8(), _bits(8, signed=True)),
    "i16": (pl.Int16(), _bits(16, signed=True)),
    "i32": (pl.Int32(), _bits(32, signed=True)),
    "i64": (pl.Int64(), _bits(64, signed=True)),
    "u8": (pl.UInt8(), _bits(8, signed=False)),
    "u16": (pl.UInt16(), _bits(16, signed=False)),
    "u32": (pl.UInt32(), _bits(32, signed=False)),
    "u64": (pl.UInt64(), _bits(64, signed=False)),
    "f": (pl.Float64(), _float),
    "g": (pl.Float64(), _float),
    "f32": (pl.Float32(), _float32),
    "b": (pl.Boolean(), lambda rng: rng.random() < 0.5),
    "q": (pl.Boolean(), lambda rng: rng.random() < 0.5),
    "s": (pl.String(), _text),
    "t": (pl.String(), _text),
    "d": (pl.Date(), _day),
    "e": (pl.Date(), _day),
    "ms": (pl.Datetime("ms"), _time(10**3)),
    "us": (pl.Datetime("us"), _time(10**6)),
    "vs": (pl.Datetime("us"), _time(10**6)),
    "ns": (pl.Datetime("ns"), _time(10**9)),
    "utc": (pl.Datetime("us", "UTC"), _time(10**6)),
    "span": (pl.Duration("us"), _span),
    "m": (pl.Decimal(15, 2), _money),
    "n": (pl.Decimal(12, 4), lambda rng: decimal.Decimal(rng.randint(-(10**7), 10**7)).scaleb(-4)),
    "small": (pl.Int64(), lambda rng: rng.randint(-3, 4)),
    "key": (pl.Int32(), lambda rng: rng.randint(0, 3)),
    "l": (pl.List(pl.Int64()), lambda rng: [rng.choice((1, 2, 3, None)) for _ in range(rng.randrange(4))]),
    "st": (
        pl.Struct({"x": pl.Int64(), "y": pl.String()}),
        lambda rng: {"x": rng.randrange(5), "y": rng.choice(_WORDS)},
    ),
}
"""By the name of a column: its type, and what makes a value."""


def random_series(rng: random.Random, name: str, rows: int, *, nulls: float) -> pl.Series:
    """Return a column of one of the types."""
    dtype, make = TYPES[name]
    values = [None if rng.random() < nulls else make(rng) for _ in range(rows)]
    if isinstance(dtype, pl.Date):
        return pl.Series(name, values, dtype=pl.Int32).cast(dtype)
    if isinstance(dtype, pl.Datetime | pl.Duration):
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    return pl.Series(name, values, dtype=dtype)


def random_frame(seed: int) -> pl.DataFrame:
    """Return a frame with a column of each type, and ``row``, which tells the rows apart."""
    rng = random.Random(seed)
    rows = rng.choice((0, 1, 2, 5, 20, 40))
    nulls = rng.choice((0.0, 0.2, 0.2, 1.0))
    return pl.DataFrame([random_series(rng, name, rows, nulls=nulls) for name in TYPES]).with_row_index("row")

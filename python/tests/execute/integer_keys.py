"""Keys of all types that are kept as integers, also at the bounds of these."""

from __future__ import annotations

import random

import polars as pl

BOUNDS = {
    pl.Int8(): (-(2**7), 2**7 - 1),
    pl.Int16(): (-(2**15), 2**15 - 1),
    pl.Int32(): (-(2**31), 2**31 - 1),
    pl.Int64(): (-(2**63), 2**63 - 1),
    pl.UInt8(): (0, 2**8 - 1),
    pl.UInt16(): (0, 2**16 - 1),
    pl.UInt32(): (0, 2**32 - 1),
    pl.UInt64(): (0, 2**64 - 1),
    pl.Date(): (-(2**31), 2**31 - 1),
    pl.Datetime("us"): (-(2**63), 2**63 - 1),
    pl.Datetime("ms", "Europe/Paris"): (-(2**63), 2**63 - 1),
    pl.Duration("us"): (-(2**63), 2**63 - 1),
}


def keys_near(rng: random.Random, bounds: tuple[int, int], count: int, gaps: int) -> list[int]:
    """Return different keys, with gaps, at some place between the bounds or at one of them."""
    least, greatest = bounds
    span = min(count * gaps, greatest - least + 1)
    first = rng.choice([least, greatest - span + 1, rng.randrange(least, greatest - span + 2)])
    return rng.sample(range(first, first + span), min(count, span))


def of_type(values: list[int | None], dtype: pl.DataType) -> pl.Series:
    """Return integers as values of a type."""
    physical = {pl.Date: pl.Int32(), pl.Datetime: pl.Int64(), pl.Duration: pl.Int64()}.get(type(dtype), dtype)
    return pl.Series(values, dtype=physical).cast(dtype)

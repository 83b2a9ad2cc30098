"""The queries, and the planner without their distributed forms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import polars as pl

__all__ = ["QUERIES", "gathering", "make_table"]

X, F, K = pl.col("x"), pl.col("f"), pl.col("k")

QUERIES: Mapping[str, tuple[pl.Expr, ...]] = {
    "median": (F.median(),),
    "index_of": (X.index_of(-1),),
    "cum_sum": (X.cum_sum().alias("z"),),
    "shift, diff": (X.shift(1).alias("a"), F.diff().alias("b")),
    "rolling_mean": (F.rolling_mean(50).alias("z"),),
    "forward_fill": (X.forward_fill().alias("z"),),
    "interpolate": (X.interpolate().alias("z"),),
    "two windows": (F.sum().over("k").alias("a"), F.max().over(K % 7).alias("b")),
}
"""Columns by name; of each column a sum goes back, so that the answer is small."""


def make_table(folder: Path, rows: int) -> None:
    """Write a table of 20 bytes a row in 16 files."""
    for part in range(16):
        first, last = rows * part // 16, rows * (part + 1) // 16
        number = pl.int_range(first, last, eager=True)
        x = pl.when(number % 5 == 0).then(None).otherwise(number * 7919 % 1_000_003)
        table = pl.select(x=x, f=(number * 31337 % 1_000_033) / 7, k=(number % 1000).cast(pl.Int32))
        table.write_parquet(folder / f"{part:02}.parquet")


@contextlib.contextmanager
def gathering() -> Iterator[None]:
    """Let one rank gather what these queries do."""
    none = {
        "cudf_polars.lower.rowwise.sequences_of": None,
        "cudf_polars.lower.rowwise.are_windows": False,
        "cudf_polars.lower.scalars.is_quantile": False,
    }
    with contextlib.ExitStack() as stack:
        for place, answer in none.items():
            stack.enter_context(mock.patch(place, return_value=answer))
        parted = "cudf_polars.lower.aggregates._Splitter._index_of"
        from cudf_polars.lower.aggregates import _Undecomposable

        stack.enter_context(mock.patch(parted, side_effect=_Undecomposable))
        yield

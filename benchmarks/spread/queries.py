"""The queries, and the planner without their distributed forms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

import polars as pl

__all__ = ["QUERIES", "gathering", "make_table"]

Query = Callable[[pl.LazyFrame], pl.LazyFrame]

X, F, K = pl.col("x"), pl.col("f"), pl.col("k")


def _columns(*exprs: pl.Expr) -> Query:
    """Return the query of these columns; of each a sum goes back, so that the answer is small."""
    names = [expr.meta.output_name() for expr in exprs]
    return lambda table: table.select(exprs).select(pl.col(names).cast(pl.Float64).sum())


def _numbered(table: pl.LazyFrame) -> pl.LazyFrame:
    return table.select("f", "k").with_row_index("n").with_columns(pl.col("n").cast(pl.Int64))


def _merged(table: pl.LazyFrame) -> pl.LazyFrame:
    rows = _numbered(table)
    return rows.merge_sorted(rows.filter(K % 3 == 0), "n").select(F.diff().abs().sum())


def _side_by_side(table: pl.LazyFrame) -> pl.LazyFrame:
    tables = [table.select("x"), table.filter(K % 3 > 0).select("f")]
    return pl.concat(tables, how="horizontal_extend").select((X * F).sum())


def _by_windows_of_time(table: pl.LazyFrame) -> pl.LazyFrame:
    return _numbered(table).group_by_dynamic("n", every="1000i").agg(F.sum()).select(F.max())


def _rolling(table: pl.LazyFrame) -> pl.LazyFrame:
    return _numbered(table).rolling("n", period="20i").agg(F.sum()).select(F.max())


QUERIES: Mapping[str, Query] = {
    "median": _columns(F.median()),
    "index_of": _columns(X.index_of(-1)),
    "cum_sum": _columns(X.cum_sum().alias("z")),
    "shift, diff": _columns(X.shift(1).alias("a"), F.diff().alias("b")),
    "rolling_mean": _columns(F.rolling_mean(50).alias("z")),
    "forward_fill": _columns(X.forward_fill().alias("z")),
    "interpolate": _columns(X.interpolate().alias("z")),
    "two windows": _columns(F.sum().over("k").alias("a"), F.max().over(K % 7).alias("b")),
    "ordered window": _columns(F.cum_sum().over("k", order_by=["x", "f"]).alias("z")),
    "merge_sorted": _merged,
    "horizontal": _side_by_side,
    "group_by_dynamic": _by_windows_of_time,
    "rolling": _rolling,
}


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
    from cudf_polars.lower import planner
    from cudf_polars.lower.aggregates import _Undecomposable
    from cudf_polars.plan.nodes import HConcat, MergeSorted

    none = {
        "cudf_polars.lower.rowwise.sequences_of": None,
        "cudf_polars.lower.rowwise.are_windows": False,
        "cudf_polars.lower.table_passes.is_quantile": False,
    }
    gathered = dict.fromkeys((HConcat, MergeSorted), planner._on_one_rank)
    with contextlib.ExitStack() as stack:
        for place, answer in none.items():
            stack.enter_context(mock.patch(place, return_value=answer))
        parted = "cudf_polars.lower.aggregates._Splitter._index_of"
        stack.enter_context(mock.patch(parted, side_effect=_Undecomposable))
        stack.enter_context(mock.patch.dict(planner._OPERATORS, gathered))
        stack.enter_context(mock.patch.object(planner, "lower_time_windows", planner._on_one_rank))
        yield

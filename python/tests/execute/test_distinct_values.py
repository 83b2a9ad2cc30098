"""Selections of a column's distinct values: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables, random_table, scan_five_files

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, D, B = (pl.col(name) for name in "ixfsdb")  # noqa: E741
COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), 1.5, -2.0]),
    "s": (pl.String(), ["a", "b"]),
    "d": (pl.Datetime("us"), [10**15, 10**15 + 7]),
    "b": (pl.Boolean(), [True, False]),
}
UNORDERED: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "value_counts": lambda lf: lf.select(X.value_counts()),
    "value_counts of floats": lambda lf: lf.select(F.value_counts(name="n").alias("z")),
    "value_counts of what is computed": lambda lf: lf.select((I % 3 + X).value_counts(name="n")),
    "mode": lambda lf: lf.select(S.mode()),
    "mode of floats": lambda lf: lf.select(F.mode().alias("m")),
    "top": lambda lf: lf.select(X.top_k(7)),
    "bottom": lambda lf: lf.select(D.bottom_k(3)),
    "top of text": lambda lf: lf.select(S.top_k(100)),
    "values that are counted": lambda lf: lf.select(S.value_counts().struct.field("s").str.to_uppercase()),
    "none": lambda lf: lf.select(X.top_k(0)),
}
ORDERED: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "unique_counts": lambda lf: lf.select(S.unique_counts()),
    "unique_counts in a computation": lambda lf: lf.select(X.unique_counts() + 1),
    "unique_counts of floats": lambda lf: lf.select(F.unique_counts().alias("z")),
    "mode in order": lambda lf: lf.select(B.mode(maintain_order=True)),
    "counts in order": lambda lf: lf.select(X.value_counts(sort=True).struct.field("count")),
    "counts of a filtered table": lambda lf: lf.filter(I % 2 == 0).select(X.unique_counts()),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("name", [*UNORDERED, *ORDERED])
def test_distinct_values(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    query = {**UNORDERED, **ORDERED}[name](table)
    for outcome in assert_like_polars(query, nranks, options, ordered=name in ORDERED):
        assert not outcome.fallbacks


# Of no rows, Polars gives the fields of runs in another order than it plans.
@pytest.mark.parametrize("rows", [1, 2, 40])
@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3])
def test_runs(rows: int, nranks: int, options: ExecutionOptions, tmp_path: Path) -> None:
    lf = scan_five_files(random_table(rows, COLUMNS), tmp_path)
    for query in (
        lf.select(X.rle()),
        lf.select(S.fill_null("a").rle().alias("r")),
        lf.select(F.rle()),
        lf.select(B.rle().struct.field("len")),
    ):
        for outcome in assert_like_polars(query, nranks, options):
            assert not outcome.fallbacks

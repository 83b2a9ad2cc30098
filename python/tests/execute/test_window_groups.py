"""Windows with computed keys, with keys that they do not share, and what is a window in other words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, B = (pl.col(name) for name in "ixfsb")  # noqa: E741

QUERIES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "computed key": lambda lf: lf.with_columns(w=I.sum().over(X % 2)),
    "computed key beside a column": lambda lf: lf.with_columns(w=I.cum_sum().over(X % 2, "s")),
    "three keys": lambda lf: lf.select("i", a=I.sum().over("x"), b=I.max().over("s"), c=I.first().over("f")),
    "keys in a ring": lambda lf: lf.select(
        "i", a=I.sum().over("x", "s"), b=I.max().over("s", "b"), c=I.min().over("b", "f")
    ),
    "filter by two windows": lambda lf: lf.filter(I == I.max().over("x"), I >= I.min().over("s")),
    "equal rows": lambda lf: lf.select(
        X.is_unique(),
        a=S.is_duplicated(),
        b=F.is_first_distinct(),
        c=S.is_last_distinct(),
        d=B.is_first_distinct(),
    ),
    "filter of equal rows": lambda lf: lf.filter(X.is_first_distinct()),
    "beside a shift": lambda lf: lf.with_columns(z=S.is_duplicated() & (X.shift(1) > 2)),
    "one partition": lambda lf: lf.select(I, a=(X + 1).over(pl.lit(42)), b=X.cum_sum().over(pl.lit(1))),
    "all at once": lambda lf: lf.with_columns(
        z=I.shift(1).over(S.str.to_uppercase()) - I.max().over("b") + I.max()
    ),
}


COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), 1.5, -2.0, 0.0, -0.0]),
    "s": (pl.String(), ["a", "b"]),
    "b": (pl.Boolean(), [True, False]),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_windows(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    for query in (QUERIES[name](table), QUERIES[name](table.filter(I > 3))):
        for outcome in assert_like_polars(query, nranks, options):
            assert not outcome.fallbacks


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize(
    "order", [X.shift(1).fill_null(0), I.reverse() % 7, I.rank("ordinal", descending=True)]
)
def test_an_order_of_the_whole_table_is_gathered(table: pl.LazyFrame, order: pl.Expr, nranks: int) -> None:
    """Polars computes what a window's rows are ordered by before it makes partitions."""
    query = table.with_columns(w=I.cum_sum().over("s", order_by=order))
    for outcome in assert_like_polars(query, nranks):
        assert outcome.fallbacks

"""Windows over the whole table in another order: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, D = (pl.col(name) for name in "ixfsd")  # noqa: E741
COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), float("inf"), 0.0, -0.0, -2.0]),
    "s": (pl.String(), ["a", "b", ""]),
    "d": (pl.Datetime("us"), [10**15, 10**15 + 7]),
}


def _sql(text: str) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    return lambda lf: pl.SQLContext(t=lf).execute(text)


QUERIES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "cumulative": lambda lf: lf.with_columns(z=I.cum_sum().over(1, order_by="x")),
    "without a partition": lambda lf: lf.with_columns(z=I.cum_sum().over(order_by="x")),
    "equal keys stay in their order": lambda lf: lf.select("i", z=I.shift(1).over(1, order_by="s")),
    "descending": lambda lf: lf.select(I, z=I.diff().over(1, order_by="d", descending=True)),
    "nulls last": lambda lf: lf.select(I, z=X.cum_count().over(1, order_by="x", nulls_last=True)),
    "floats": lambda lf: lf.select(I, z=I.cum_max().over(1, order_by="f")),
    "by what is computed": lambda lf: lf.select(I, z=I.cum_sum().over(1, order_by=-(I % 3))),
    "several orders": lambda lf: lf.select(
        I, a=I.cum_sum().over(1, order_by="x"), b=I.shift(1).over(1, order_by="s"), c=X.sum().over("s")
    ),
    "one order twice": lambda lf: lf.select(
        I, a=I.cum_sum().over(1, order_by="x") * 2, b=X.shift(1).over(1, order_by="x") + I
    ),
    "as a filter": lambda lf: lf.filter(I.cum_sum().over(1, order_by="f") > 50),
    "then a sum": lambda lf: lf.with_columns(z=I.shift(1).over(1, order_by="x")).select(pl.col("z").sum()),
    "beside others, as a sum that no order matters to": lambda lf: lf.select(
        a=I.cum_sum().over(1, order_by="x"),
        b=I.shift(1).over(1, order_by="s"),
        c=I.shift(1),
        d=X.rank("ordinal"),
    ).select((pl.col("a") * pl.col("b") * pl.col("c") * pl.col("d")).sum()),
    "several as a filter, then a sum": lambda lf: lf.filter(
        I.cum_sum().over(1, order_by="s") > 100, I.shift(1).over(1, order_by="x") > 3, I.shift(1) > X
    ).select(I.sum()),
    "in functions over other rows": lambda lf: lf.select(
        I,
        a=(I.cum_sum().over(1, order_by="x") + 1).cum_max().shift(1),
        b=I - I.cum_sum().over(1, order_by="s").max(),
    ),
    "ranks": lambda lf: lf.select(I, z=I.rank("ordinal").over(1, order_by="s")),
    "ROW_NUMBER": _sql("SELECT i, ROW_NUMBER() OVER (ORDER BY f DESC) AS z FROM t ORDER BY i"),
    "ROW_NUMBER by one": _sql("SELECT i, ROW_NUMBER() OVER (ORDER BY x) AS z FROM t"),
    "LAG and LEAD": _sql("SELECT i, LAG(s) OVER (ORDER BY x) AS a, LEAD(i) OVER (ORDER BY x) AS b FROM t"),
    "RANK": _sql("SELECT i, RANK() OVER (ORDER BY x) AS a, DENSE_RANK() OVER (ORDER BY s DESC) AS b FROM t"),
    "running sums": _sql(
        "SELECT i, SUM(i) OVER (ORDER BY x) AS a, SUM(x) OVER (ORDER BY s DESC) AS b FROM t"
    ),
    "running extremes": _sql(
        "SELECT i, MIN(f) OVER (ORDER BY x DESC) AS a, MAX(i) OVER (ORDER BY d) AS b FROM t"
    ),
    "running counts": _sql("SELECT i, COUNT(x) OVER (ORDER BY f) AS a FROM t"),
    "running sums of groups": _sql("SELECT i, SUM(i) OVER (PARTITION BY s ORDER BY x) AS a FROM t"),
    "FIRST_VALUE": _sql("SELECT i, FIRST_VALUE(i) OVER (ORDER BY x DESC) AS a FROM t"),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_windows_in_another_order(
    table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions
) -> None:
    for outcome in assert_like_polars(QUERIES[name](table), nranks, options):
        assert not outcome.fallbacks

"""Windows that another column's values give, over whole tables: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, D, T, N = (pl.col(name) for name in "ixfsdtn")  # noqa: E741
COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [1.5, 0.25, -2.0]),
    "s": (pl.String(), ["a", "b"]),
    "d": (pl.Date(), [date(2024, 1, day) for day in (1, 2, 5, 30)]),
    "t": (pl.Datetime("us"), [datetime(2024, 3, 1, hour) for hour in range(0, 24, 5)]),
    "n": (pl.Int32(), [1, 4, 9, 10]),
}

QUERIES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "sums": lambda lf: lf.with_columns(z=X.rolling_sum_by("t", "6h"), y=I.rolling_sum_by("d", "4d")),
    "of integers": lambda lf: lf.with_columns(
        z=X.rolling_max_by("n", "3i", closed="both"),
        y=F.rolling_min_by("n", "6i", closed="left", min_samples=2),
    ),
    "statistics": lambda lf: lf.select(
        I,
        a=I.rolling_mean_by("t", "11h"),
        b=I.rolling_std_by("t", "11h"),
        c=F.rolling_var_by("n", "5i", ddof=0),
        d=I.rolling_quantile_by("d", "1w", quantile=0.3, interpolation="linear"),
    ),
    "by what is computed": lambda lf: lf.select(z=(X + 1).rolling_sum_by(I // 3, "2i", closed="none")),
    "as a filter": lambda lf: lf.filter(I.rolling_sum_by("t", "6h") > 40),
    "by the order of rows": lambda lf: lf.select(
        I,
        a=X.sum().rolling("i", period="4i"),
        b=pl.len().rolling("i", period="3i", offset="-1i", closed="both"),
        c=S.last().rolling("i", period="5i", closed="none"),
        d=X.rolling("i", period="2i", offset="0i").alias("l"),
    ),
    "of sorted times": lambda lf: (
        lf.drop_nulls("t")
        .sort("t", "i")
        .with_columns(z=F.mean().rolling("t", period="6h"), y=I.max().rolling("t", period="1d", offset="-5h"))
    ),
    "sorted windows inside windows": lambda lf: lf.select(
        I, z=I.cum_sum().over(1, order_by="s").last().rolling("i", period="4i")
    ),
    "ranks inside windows": lambda lf: lf.select(
        I, a=(-X).rank("min").last().rolling("i", period="4i"), b=X.rank("min")
    ),
    "beside others": lambda lf: lf.select(
        a=X.rolling_sum_by("t", "6h").cum_sum(), b=I.rank("min"), c=I.diff(), w=I.sum().over("s")
    ),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_windows_of_values(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    for outcome in assert_like_polars(QUERIES[name](table), nranks, options):
        assert not outcome.fallbacks

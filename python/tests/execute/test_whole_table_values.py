"""Quantiles, places of values and lists of a whole table: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run
from execute.random_tables import five_file_tables, random_table

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.lower.quantiles import places

I, X, F, S, L = (pl.col(name) for name in "ixfsl")  # noqa: E741
METHODS = ("nearest", "lower", "higher", "midpoint", "linear", "equiprobable")

QUERIES: Mapping[str, list[pl.Expr]] = {
    "median": [X.median(), F.median().alias("f"), pl.col("d").median(), L.explode().median()],
    "quantiles": [X.quantile(q, m).alias(f"{m}{q}") for m in METHODS for q in (0, 0.3, 0.5, 0.7, 1)],
    "quantiles of floats": [F.quantile(0.7, m).alias(m) for m in METHODS],
    "a median beside others": [(X - X.median()).sum().alias("a"), X.filter(I > 5).median(), pl.len()],
    "index_of": [
        X.index_of(3),
        X.index_of(None).alias("null"),
        F.index_of(float("nan")),
        S.index_of("nowhere"),
        X.filter(I > 5).index_of(2).alias("filtered"),
    ],
    "arg_min": [(I * 7 % 41).arg_min().alias("low"), (I * 7 % 41).arg_max().alias("high")],
    "corr": [
        pl.corr("i", "x"),
        pl.corr(X, F).alias("nan"),
        pl.corr(X, pl.lit(2.0) + I * 0).alias("constant"),
        pl.cov("i", "x").alias("cov"),
        pl.cov(I, X, ddof=0).alias("population"),
    ],
    "is_sorted": [I.is_sorted(), X.is_sorted(), I.is_sorted(descending=True).alias("down")],
    "implode": [I.implode(), S.implode(), L.implode(), X.filter(I > 3).implode().alias("filtered")],
    "exploded": [L.explode().sum(), X.drop_nulls().len(), X.filter(I > 3).n_unique().alias("n")],
    "a row": [S.get(2, null_on_oob=True), X.get(-1, null_on_oob=True)],
}


COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), 1.5, -2.0, 0.25]),
    "s": (pl.String(), ["a", "b"]),
    "d": (pl.Datetime("us"), [10**15, 10**15 + 7]),
    "l": (pl.List(pl.Int64()), [[], [1], [2, None]]),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_a_value_of_a_table(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    for outcome in assert_like_polars(table.select(QUERIES[name]), nranks, options):
        assert not outcome.fallbacks


@pytest.mark.parametrize("place", [40, -41])
def test_a_row_that_is_not_there_raises(place: int, tmp_path: Path) -> None:
    random_table(40, COLUMNS).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(pl.exceptions.OutOfBoundsError):
        run(pl.scan_parquet(tmp_path / "t.parquet").select(X.get(place)), 2)


@pytest.mark.parametrize("dtype", [pl.Boolean(), pl.Decimal(10, 2)])
def test_a_correlation_that_polars_refuses_raises(dtype: pl.DataType, tmp_path: Path) -> None:
    pl.DataFrame({"v": [0, 1, 1]}).cast(dtype).write_parquet(tmp_path / "t.parquet", row_group_size=1)
    with pytest.raises(pl.exceptions.InvalidOperationError, match="`corr` operation not supported"):
        run(pl.scan_parquet(tmp_path / "t.parquet").select(pl.corr("v", "v")), 2)


@pytest.mark.parametrize("method", METHODS)
def test_places_are_those_that_polars_looks_at(method: pl._typing.QuantileMethod) -> None:
    for values in range(1, 12):
        for nulls in range(3):
            column = pl.Series([None] * nulls + [float(3**n) for n in range(values)], dtype=pl.Float64)
            for share in (k / 20 for k in range(21)):
                found = places(share, method, values, nulls)
                rows = column.slice(found.first, found.rows)
                expected = column.quantile(share, method)
                assert rows.quantile(found.share, method) == pytest.approx(expected), (values, nulls, share)

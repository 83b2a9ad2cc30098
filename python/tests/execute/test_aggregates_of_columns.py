"""Aggregates of values that are not made row by row run on all ranks: of windows, differences, ranks, sorted values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars

X, F, K, B = pl.col("x"), pl.col("f"), pl.col("k"), pl.col("b")
DEVIATION = X - X.mean().over("k")

AGGREGATES: dict[str, Sequence[pl.Expr]] = {
    "of differences": [X.diff().sum(), F.diff().abs().mean().alias("f"), X.diff().n_unique().alias("n")],
    "of sums up to a row": [X.cum_sum().max(), F.cum_sum().filter(B).last()],
    "of windows": [
        X.sum().over("k").max(),
        DEVIATION.pow(2).sum().alias("d"),
        X.max().over("k", "b").min().alias("m"),
    ],
    "of two kinds of windows": [X.sum().over("k").max(), F.max().over("b").sum()],
    "of windows in order": [F.cum_sum().over("k", order_by="x").max(), X.first().over("k").last()],
    "of ranks": [X.rank().sum(), F.rank("dense").max(), X.filter(K.rank("min") > 3).mean().alias("m")],
    "of repeats": [
        K.is_duplicated().any(),
        K.is_first_distinct().sum().alias("s"),
        B.rle_id().max().alias("r"),
    ],
    "of rolling windows": [X.rolling_mean(3).max(), F.rolling_sum(4).min()],
    "compared with the row before": [(X != X.shift(1)).sum(), (X.diff() >= 0).all().alias("a")],
    "of filled values": [X.forward_fill().sum(), X.interpolate().mean().alias("i")],
    "of two columns": [pl.corr(X, X.shift(1)), X.dot(X.shift(1)).alias("d"), pl.cov(F, F.diff()).alias("c")],
    "quantiles": [X.diff().median(), F.rank().quantile(0.25), F.shift(2).median().alias("m")],
    "of aggregates": [
        (F.pct_change().mean() / F.pct_change().std()),
        (X.diff() - X.diff().mean()).pow(2).sum(),
    ],
    "beside others": [X.diff().sum(), X.sum().alias("s"), pl.len().alias("n"), F.median(), K.n_unique()],
    "first and last": [X.diff().first(), X.diff().last().alias("l"), F.shift(1).get(0, null_on_oob=True)],
    "with filters": [X.filter(X == X.max().over("k")).sum(), X.diff().filter(X.diff() > 0).mean().alias("u")],
    "of structs": [pl.struct(X.diff(), F.shift(1)).n_unique().alias("n")],
}
STEPS: dict[str, pl.Expr] = {
    "distinct values": K.unique().sum(),
    "distinct values of an expression": (K % 3).unique().mean(),
    "sorted values": X.sort().first(),
    "every third": X.gather_every(3).sum(),
    "backwards": X.reverse().first(),
    "the largest": X.top_k(3).sum(),
    "the commonest": K.mode().max(),
    "sorted by another": X.sort_by("f", "x").last(),
    "the head": F.head(7).mean(),
    "changed behind": (K.unique() + 1).sum() * 2,
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    number = pl.int_range(60, eager=True)
    rows = pl.DataFrame(
        {
            "x": (number * 37 % 61).cast(pl.Int64),
            "f": (number * 17 % 59) / 4 + 1,
            "k": number * 7 % 5,
            "b": number % 3 == 0,
        }
    )
    rows = rows.with_columns(x=pl.when(pl.col("x") % 9 > 0).then("x"))
    found = {}
    for name, frame in {"rows": rows, "one": rows[:1], "none": rows.clear()}.items():
        frame.write_parquet(folder / f"{name}.parquet", row_group_size=7)
        found[name] = pl.scan_parquet(folder / f"{name}.parquet")
    return found


def strict(options):
    return replace(options, fallback_mode="raise")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates(tables, name: str, nranks: int) -> None:
    for options in (TINY, PARTITIONED, ORDINARY):
        assert_like_polars(tables["rows"].select(AGGREGATES[name]), nranks, strict(options))


@pytest.mark.parametrize("name", AGGREGATES)
def test_few_rows(tables, name: str) -> None:
    for table in ("one", "none"):
        assert_like_polars(tables[table].select(AGGREGATES[name]), 3, TINY)


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("name", STEPS)
def test_aggregates_of_steps(tables, name: str, nranks: int) -> None:
    for options in (TINY, PARTITIONED):
        assert_like_polars(tables["rows"].select(STEPS[name]), nranks, strict(options))
    for table in ("one", "none"):
        assert_like_polars(tables[table].select(STEPS[name]), nranks, TINY)


BESIDE_ROWS = {
    "with_columns": lambda t: t.with_columns(z=X - X.diff().mean(), w=F / F.rolling_sum(3).max()),
    "select": lambda t: t.select("k", z=X > X.sum().over("k").mean()),
    "filter": lambda t: t.filter(X > X.shift(1).mean()),
    "both": lambda t: t.with_columns(z=X.diff() - X.diff().mean(), w=X.cum_sum() / X.cum_sum().max()),
    "behind a filter": lambda t: t.filter(B).select(X.diff().sum(), F.rank().max()),
    "behind a join": lambda t: t.join(
        t.select("k", v="x").unique(), on="k", maintain_order="left_right"
    ).select(F.diff().sum()),
    "behind groups": lambda t: t.group_by("k").agg(X.sum()).sort("k").select(X.diff().max()),
    "twice": lambda t: t.with_columns(z=X.diff().mean()).select((X - pl.col("z")).diff().sum()),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("nranks", [2, 3, 5])
@pytest.mark.parametrize("name", BESIDE_ROWS)
def test_beside_rows(tables, name: str, nranks: int) -> None:
    for options in (TINY, PARTITIONED, ORDINARY):
        assert_like_polars(BESIDE_ROWS[name](tables["rows"]), nranks, strict(options))


def test_the_first_of_values_in_no_order_is_what_one_rank_finds(tables) -> None:
    (outcome, _) = assert_like_polars(tables["rows"].select(pl.col("k").mode().count()), 2, TINY)
    assert outcome.fallbacks == []
    (outcome, _) = assert_like_polars(tables["rows"].select(pl.col("k").mode().first() * 0), 2, TINY)
    assert outcome.fallbacks != []

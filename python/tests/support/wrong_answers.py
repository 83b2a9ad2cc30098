"""Queries that were once answered wrongly over several ranks, each the smallest of its kind.

A query is a function of two tables; :func:`queries` gives them by name. ``table`` has 60 rows, ``small`` 8; both come
from files or from data frames, whose rows lie on one rank or on all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl

__all__ = ["ORDERED", "frames", "from_files", "queries"]

Query = Callable[[pl.LazyFrame, pl.LazyFrame], pl.LazyFrame]
N, G, X, S = pl.col("n"), pl.col("g"), pl.col("x"), pl.col("s")


def frames() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables."""
    rows = range(60)
    table = pl.DataFrame(
        {
            "n": [i * 7 % 60 for i in rows],
            "g": [i % 4 for i in rows],
            "x": [None if i % 4 == 1 else i for i in rows],
            "s": [f"s{i % 5}" for i in rows],
            "d": [None if i % 9 == 0 else Decimal(i * 37) / 100 for i in rows],
            "t": [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=i * i) for i in rows],
        },
        schema_overrides={"d": pl.Decimal(12, 2)},
    )
    small = pl.DataFrame(
        {"k": [3, 5, 5, 7, 11, 13, 100, 2], "n": [70 + i for i in range(8)], "g": [i % 3 for i in range(8)]},
        schema_overrides={"k": pl.Int32},
    )
    return table, small


def from_files(folder: Path) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Write both tables as Parquet with small row groups, and return scans of them."""
    scans = []
    for name, frame in zip(("table", "small"), frames(), strict=True):
        frame.write_parquet(folder / f"{name}.parquet", row_group_size=7)
        scans.append(pl.scan_parquet(folder / f"{name}.parquet"))
    return scans[0], scans[1]


def _sql(text: str) -> Query:
    return lambda t, u: pl.SQLContext(t=t, u=u).execute(text, eager=False)


IN_SUBQUERIES = "SELECT n FROM t WHERE n+1 IN (SELECT k FROM u) AND n IN (SELECT n FROM t WHERE g > 0)"


def _failing(t: pl.LazyFrame) -> pl.LazyFrame:
    """Return the table with a column that cannot be computed."""
    return t.with_columns(failing=S.cast(pl.Int64))


def _merged_halves(lf: pl.LazyFrame) -> pl.LazyFrame:
    """Merge the small counts with the large."""
    small, large = lf.filter(pl.col("c").is_null()), lf.filter(pl.col("c") >= 6)
    return small.sort("c").merge_sorted(large.sort("c"), "c")


def _twice_merged(t: pl.LazyFrame, u: pl.LazyFrame) -> pl.LazyFrame:
    head = t.sort("n").select("n", "g").head(5)
    return head.filter(N % 2 == 0).merge_sorted(head.filter(N % 2 == 1), "n")


def queries() -> dict[str, Query]:
    """Return the queries by name."""
    return {
        # one aggregate twice: Polars computes it once, as a column of its own length
        "aggregate_twice": lambda t, u: t.select(a=N.sum(), b=N.sum() / pl.len()),
        "min_and_range": lambda t, u: t.select(a=N.min(), b=N.max() - N.min()),
        "aggregate_twice_sql": _sql("SELECT SUM(n) AS a, SUM(n)/COUNT(*) AS m FROM t"),
        "sorted_head_twice": lambda t, u: t.select(a=N.sort().head(2), b=N.sort().head(2) * 2),
        "value_counts_unnested": lambda t, u: t.select(
            pl.struct("g").value_counts(sort=True).struct.unnest()
        ).sort("g"),
        # an aggregate inside a window is the window's
        "share_of_group": lambda t, u: t.select("n", share=N.sum().over("g") / N.sum()),
        "window_and_table_sql": _sql(
            "SELECT n, COUNT(*) OVER (PARTITION BY g) AS a, COUNT(*) OVER () AS b FROM t"
        ),
        # aggregates of aggregates see one value
        "sum_of_max": lambda t, u: t.select(N.max().sum(), c=X.null_count().sum()),
        "deviation": lambda t, u: t.select(((N - N.mean()) ** 2).sum().sqrt(), r=(N - N.min()).max()),
        # distinct counts beside other aggregates, over what was exchanged
        "distinct_beside_max": lambda t, u: t.unique("n").select(a=G.n_unique(), b=N.max()),
        "distinct_after_join": lambda t, u: t.join(t, on="n").select(
            a=G.n_unique(), b=N.max(), c=S.n_unique()
        ),
        "distinct_after_group": lambda t, u: (
            t.group_by("g").agg(N.median()).select(N.n_unique(), s=G.sum(), r=N.n_unique() / pl.len())
        ),
        "median_beside_sum": lambda t, u: t.unique("n").select(N.median(), s=N.sum()),
        "first_of_a_series_beside_max": lambda t, u: t.select(
            N.max(), s=pl.lit(pl.Series([3, 1, 2])).first()
        ),
        "series_of_one_beside_length": lambda t, u: t.select(
            pl.struct(pl.lit(pl.Series("s", [7])), pl.len().alias("n")).alias("z")
        ),
        "cross_joins_of_which_no_column_is_used": lambda t, u: (
            t.join(u, how="cross").join(u, how="cross", suffix="_2").select(pl.col("k_2").sum(), n=pl.len())
        ),
        # the column that Polars makes for `having` is renamed in the plan, and nothing else
        "having_over_a_right_join_of_other_types": lambda t, u: (
            t.select("n", "g", a=N)
            .join(u.with_columns(a=pl.col("k") * 2), left_on=["n", "a"], right_on=["n", "k"], how="right")
            .group_by("g_right")
            .having(pl.col("a").sum() > 5)
            .agg(pl.col("a").sum().alias("sum"))
        ),
        "value_at_maximum": lambda t, u: t.select(N.min(), v=N.get(G.max())),
        "quantile_of_aggregate": lambda t, u: t.select(N.quantile((G.max() / 10).clip(0, 1)), s=N.sum()),
        # rows that Polars knows when it plans, and that have the column which it made for `having`
        "having_of_which_no_row_is_left": lambda t, u: _merged_halves(
            _sql("SELECT g, COUNT(n) AS c FROM t GROUP BY g HAVING MAX(n) > 3")(t, u).filter(
                pl.col("c") <= -3
            )
        ),
        # what Polars leaves out, because nobody uses it, may fail
        "failing_column_under_a_hidden_step": lambda t, u: _sql(IN_SUBQUERIES)(_failing(t), u),
        "failing_column_above_a_hidden_step": lambda t, u: (
            _sql(IN_SUBQUERIES.replace("n FROM t", "* FROM t", 1))(_failing(t), u).filter(N > 3).select("n")
        ),
        "failing_join_under_literals": lambda t, u: t.join(u, on="g", validate="1:1").select(
            a=pl.lit(1), b=pl.lit("x")
        ),
        # slices of frames
        "slice_behind_a_slice": lambda t, u: t.slice(5).slice(7),
        "slice_behind_sorted_rows": lambda t, u: t.sort("n").slice(40).slice(9),
        "slice_beyond_the_end": lambda t, u: t.slice(55).slice(70),
        "head": lambda t, u: t.head(3),
        "tail": lambda t, u: t.select("n", "g").tail(4),
        "slice_then_sum": lambda t, u: t.slice(5, 20).select(N.sum()),
        "head_of_some": lambda t, u: t.with_columns(b=1).head(2),
        "sort_head": lambda t, u: t.sort("n").head(4),
        "first_and_last": lambda t, u: t.select(a=N.first(), b=N.last()),
        "gather_every": lambda t, u: t.gather_every(13, 1),
        "merge_of_heads": _twice_merged,
        "head_filtered": lambda t, u: t.sort("n").head(8).filter(N % 2 == 0),
        # joins
        "right_join_other_types": lambda t, u: t.select("n", "g").join(
            u, left_on="n", right_on="k", how="right"
        ),
        "left_join_other_types": lambda t, u: t.select("n", "g").join(
            u, left_on="n", right_on="k", how="left"
        ),
        "cross_without_columns": lambda t, u: t.join(u.select("k"), how="cross").select(N.sum()),
        "cross_counted": lambda t, u: t.join(u.select("k"), how="cross").group_by("g").len(),
        "inequality_without_columns": lambda t, u: t.join_where(u.select("k"), N < pl.col("k")).select(
            pl.len()
        ),
        "decided_once": lambda t, u: t.join(
            u.join(u.select("g"), on="g").with_columns(r=pl.col("k").shuffle(seed=1)).head(3),
            on="g",
            how="semi",
        ).select(ok=G.n_unique() <= 3),
        # SQL's sum of nothing
        "sum_of_nulls_sql": _sql("SELECT g, SUM(x) AS s FROM t GROUP BY g"),
        "sum_of_no_rows_sql": _sql("SELECT SUM(x) AS s FROM t WHERE n > 1000"),
        "subquery_sql": _sql("SELECT n, (SELECT MAX(n) FROM t) AS m FROM t"),
        "not_in_sql": _sql("SELECT n FROM t WHERE n NOT IN (SELECT k FROM u WHERE k IS NOT NULL)"),
        "in_subqueries_sql": _sql(IN_SUBQUERIES),
        # what is in an order of its own beside rows
        "sorted_column": lambda t, u: t.with_columns(N.sort()).filter(N == 3).select(S),
        "sorted_beside_rows": lambda t, u: (
            t.select("n", "g").unique(maintain_order=True).with_columns(z=N.sort()).sort("n")
        ),
        # rows of which no column is read
        "row_index_alone": lambda t, u: t.with_row_index().select("index"),
        "row_numbers": lambda t, u: t.select(i=pl.int_range(pl.len())),
        "repeat": lambda t, u: t.select(r=pl.repeat(7, pl.len())),
        "constants": lambda t, u: t.select(pl.lit(3)),
        "no_columns": lambda t, u: t.select("n", "g").drop("n", "g").select(pl.len()),
        "rows_gathered": lambda t, u: t.select("n").drop("n").gather([0, 3]).select(pl.len()),
        "concat_counted": lambda t, u: pl.concat([t.select("s"), t.select(s=S)]).select(pl.len()),
        # aggregates without a partial form once
        "decimal_mean": lambda t, u: t.select(pl.col("d").mean(), v=pl.col("d").var(), s=pl.col("d").sum()),
        "decimal_mean_grouped": lambda t, u: t.group_by("g").agg(pl.col("d").mean(), m=pl.col("t").mean()),
        "function_of_aggregate": lambda t, u: t.group_by("g").agg(
            N.sum().map_elements(lambda v: v + 1, return_dtype=pl.Int64)
        ),
        "function_fails_on_nothing": lambda t, u: (
            t.filter(G == 1)
            .group_by("g")
            .agg(N.sort().map_batches(lambda s: s[0], returns_scalar=True, return_dtype=pl.Int64))
        ),
        # columns that are computed anew under the name of a key
        "window_over_its_own_name": lambda t, u: (
            t.unique(["g"])
            .with_columns(g=G - G.sum().over("g"), s=pl.lit("s"))
            .group_by("g", "s")
            .agg(pl.len())
        ),
        "window_over_a_name_that_moves": lambda t, u: (
            t.group_by("g", "s")
            .agg(N.sum())
            .with_columns(g=N.count().over("g"), m=G)
            .group_by("g")
            .agg(pl.len(), pl.col("m").sum())
        ),
        "constants_beside_aggregates": lambda t, u: t.select(
            N.sum(), a=pl.lit(1) + 1, b=pl.lit(None).cast(pl.Struct({})), c=pl.lit("7").cast(pl.Int8)
        ),
        "key_twice": lambda t, u: (
            t.select(a=N.max() - 48, b=pl.len() - 49)
            .join_where(u, pl.col("a") == pl.col("k"), pl.col("b") == pl.col("k"))
            .filter(pl.col("a") > 1)
        ),
        # literals
        "literal_of_nanoseconds": lambda t, u: t.select(
            pl.col("t").cast(pl.Datetime("ns")) + pl.duration(nanoseconds=N)
        ).filter(pl.col("t") <= pl.lit(dt.datetime(2020, 1, 1), dtype=pl.Datetime("us"))),
        "literal_list": lambda t, u: t.select("n", f=N.is_in([1, 9, 60])),
        "categories": lambda t, u: t.select(S.cast(pl.Categorical).to_physical() >= 0),
        "opaque_literals": lambda t, u: t.select(literals=pl.concat_list(pl.lit(1), pl.lit(2)), n=N.max()),
    }


ORDERED = frozenset(
    [
        "head",
        "tail",
        "slice_behind_a_slice",
        "slice_behind_sorted_rows",
        "slice_then_sum",
        "head_of_some",
        "sort_head",
        "merge_of_heads",
        "head_filtered",
        "row_index_alone",
        "row_numbers",
        "first_and_last",
        "gather_every",
        "sorted_head_twice",
        "sorted_beside_rows",
        "value_counts_unnested",
    ]
)
"""The queries whose order of rows Polars promises, over tables whose order is known."""

"""A partition that is too large is divided again; what cannot be divided is joined block by block."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, compare_answers, run

from cudf_polars.execute import paths
from cudf_polars.execute.options import ExecutionOptions

ROWS = 3000
SMALL = replace(PARTITIONED, partition_limit=800)
"""A partition has ten kilobytes or more: it is divided twice."""
ONE = replace(SMALL, partitions=1)
"""Each rank was to have one partition, which turns out to be as large."""
HOWS = ["inner", "left", "right", "full", "semi", "anti"]
V = pl.col("v")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("division")
    rows = range(ROWS)
    pl.DataFrame(
        {
            "k": [None if i % 97 == 0 else i * 7919 % 2003 for i in rows],
            "f": [float(i % 211) if i % 53 else float("nan") for i in rows],
            "v": list(rows),
            "s": [f"text {i % 500}" for i in rows],
        }
    ).write_parquet(folder / "left.parquet", row_group_size=500)
    pl.DataFrame(
        {"k": [None if i % 89 == 0 else i * 7907 % 2503 for i in rows], "w": [i * 3 for i in rows]}
    ).write_parquet(folder / "right.parquet", row_group_size=500)
    # One key has half of the rows of both sides.
    for name, value, count in (("heavy_left", "v", 500), ("heavy_right", "w", 300)):
        pl.DataFrame(
            {
                "k": [1 if i % 2 else (None if i % 10 == 0 else i) for i in range(count)],
                value: list(range(count)),
                "s": [f"text {i % 50}" for i in range(count)],
            }
        ).write_parquet(folder / f"{name}.parquet", row_group_size=100)
    return folder


def check(
    query: pl.LazyFrame, nranks: int, options: ExecutionOptions, *, ordered: bool = False
) -> Counter[str]:
    """Compare with Polars; return the ways of the rows on all ranks."""
    actual, outcomes = run(query, nranks, options)
    compare_answers(actual, query.collect(engine="streaming"), ordered=ordered)
    assert all(outcome.paths.frames_held == 0 for outcome in outcomes)
    return sum((outcome.paths.counts for outcome in outcomes), Counter())


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("how", HOWS)
def test_joins(files: Path, how: str, nranks: int) -> None:
    left, right = pl.scan_parquet(files / "left.parquet"), pl.scan_parquet(files / "right.parquet")
    taken = check(left.join(right, on="k", how=how), nranks, SMALL)
    assert taken[paths.DIVIDED]
    assert taken[paths.DIVIDED_TWICE]


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("nulls_equal", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_one_heavy_key_on_both_sides(files: Path, how: str, nulls_equal: bool, coalesce: bool) -> None:
    left = pl.scan_parquet(files / "heavy_left.parquet")
    right = pl.scan_parquet(files / "heavy_right.parquet")
    if how in ("semi", "anti"):
        query = left.join(right, on="k", how=how, nulls_equal=nulls_equal)
    else:
        query = left.join(right, on="k", how=how, nulls_equal=nulls_equal, coalesce=coalesce)
    taken = check(query, 2, replace(SMALL, partition_limit=2000))
    assert taken[paths.BLOCKS]


@pytest.mark.parametrize("how", HOWS)
def test_one_heavy_key_of_expressions_and_two_types(files: Path, how: str) -> None:
    left = pl.scan_parquet(files / "heavy_left.parquet").with_columns(pl.col("k").cast(pl.Int32))
    right = pl.scan_parquet(files / "heavy_right.parquet")
    keys = {"left_on": [pl.col("k") + 1, "s"], "right_on": [pl.col("k") + 1, "s"]}
    assert check(left.join(right, how=how, **keys), 2, replace(SMALL, partition_limit=700))[paths.BLOCKS]


def test_a_heavy_key_of_one_side_with_steps_around_the_join(files: Path) -> None:
    left = pl.scan_parquet(files / "heavy_left.parquet")
    right = pl.scan_parquet(files / "heavy_right.parquet").unique("k", keep="any").select("k", n=pl.lit(1))
    query = (
        left.with_columns(d=V * 2)
        .join(right, on="k", how="left")
        .filter(pl.col("n").is_null() | (pl.col("d") > 100))
        .group_by("k")
        .agg(V.median(), pl.col("d").sum())
    )
    assert check(query, 2, replace(SMALL, partition_limit=1500))[paths.BLOCKS]


@pytest.mark.parametrize("nranks", [1, 2])
def test_groups_without_partial_form(files: Path, nranks: int) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    taken = check(rows.group_by("k").agg(V.median(), pl.col("s").sort().first()), nranks, SMALL)
    assert taken[paths.DIVIDED_TWICE]
    taken = check(rows.group_by("f").agg(V.median(), n=pl.len()), nranks, SMALL)
    assert taken[paths.DIVIDED_TWICE]


def test_one_group_that_is_too_large_is_done_as_a_whole(files: Path) -> None:
    rows = pl.scan_parquet(files / "left.parquet").with_columns(g=pl.col("v") // ROWS)
    assert check(rows.group_by("g").agg(V.median()), 2, SMALL)[paths.WHOLE]


@pytest.mark.parametrize("nranks", [1, 2])
def test_sorts(files: Path, nranks: int) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    taken = check(rows.sort("f", "k", "v", nulls_last=[True, False, True]), nranks, SMALL, ordered=True)
    assert not taken[paths.WHOLE]
    # The sample of an exchange is good: only skew that it has not seen makes ranges too large.
    smaller = replace(SMALL, partition_limit=3000)
    assert check(rows.sort("s", "v", descending=True), nranks, smaller, ordered=True)[paths.RANGES]
    check(rows.sort("f", maintain_order=True), nranks, smaller, ordered=True)


def test_windows_and_distinct_rows(files: Path) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    check(rows.with_columns(r=V.rank().over("k"), c=V.cum_sum().over("f")), 2, SMALL, ordered=True)
    check(rows.unique("k", keep="first", maintain_order=True), 2, SMALL, ordered=True)
    check(rows.select("k", "f").unique(), 2, SMALL)


def test_rows_that_several_steps_read(files: Path) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    groups = rows.group_by("k").agg(V.median(), n=pl.len())
    query = groups.join(groups.filter(pl.col("n") > 1), on="k", how="left").join(
        groups.group_by("n").agg(pl.col("v").mean().alias("m")), on="n"
    )
    taken = check(query, 2, SMALL)
    assert taken[paths.KEPT_PARTITIONS]
    assert taken[paths.DIVIDED]


def test_nothing_is_divided_where_all_fits(files: Path) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    query = rows.group_by("k").agg(V.median())
    taken = check(query, 2, replace(PARTITIONED, partition_limit=1 << 30))
    assert taken[paths.PARTITION]
    assert not taken[paths.DIVIDED]
    _, outcomes = run(query, 2, replace(ONE, partition_limit=1 << 20))
    assert not any(outcome.paths.counts for outcome in outcomes)


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("how", HOWS)
def test_joins_of_more_rows_than_were_planned(files: Path, how: str, nranks: int) -> None:
    left, right = pl.scan_parquet(files / "left.parquet"), pl.scan_parquet(files / "right.parquet")
    taken = check(left.join(right, on="k", how=how), nranks, ONE)
    assert taken[paths.OUTGROWN] == nranks
    assert taken[paths.DIVIDED_TWICE]
    heavy = [pl.scan_parquet(files / f"heavy_{side}.parquet") for side in ("left", "right")]
    # Rows with heavy keys are not spread, as they are where samples find them.
    unsampled = replace(ONE, partition_limit=2000, dynamic_planning=False)
    assert check(heavy[0].join(heavy[1], on="k", how=how), nranks, unsampled)[paths.BLOCKS]


@pytest.mark.parametrize("nranks", [2, 3])
def test_groups_sorts_and_windows_over_more_rows_than_were_planned(files: Path, nranks: int) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    joined = rows.join(pl.scan_parquet(files / "right.parquet"), on="k")
    for query, ordered in (
        (rows.group_by("k").agg(V.median(), pl.col("s").sort().first()), False),
        (rows.group_by("f", maintain_order=True).agg(V.first(), n=pl.len()), True),
        (rows.sort("f", "k", "v", nulls_last=[True, False, True]), True),
        (rows.sort("s", maintain_order=True), True),
        (rows.with_columns(r=V.rank().over("k"), c=V.cum_sum().over("f")), True),
        (rows.unique("k", keep="first", maintain_order=True), True),
        (joined.group_by("w").agg(V.median(), pl.col("f").max()).sort("w"), False),
        (joined.sort("w", "v").with_row_index().filter(pl.col("index") % 7 == 0), True),
        (joined.group_by("k").agg(pl.col("w").max()).join(rows, on="k", how="semi"), False),
    ):
        assert check(query, nranks, ONE, ordered=ordered)[paths.OUTGROWN]


@pytest.mark.parametrize("limit", range(2_000, 40_000, 7_000))
def test_ranks_of_which_some_have_more_rows_than_were_planned(files: Path, limit: int) -> None:
    rows = pl.scan_parquet(files / "left.parquet")
    query = rows.group_by("k", maintain_order=True).agg(V, n=pl.len()).with_row_index()
    check(query, 3, replace(ONE, partition_limit=limit), ordered=True)
    check(
        rows.unique("s", keep="last", maintain_order=True),
        3,
        replace(ONE, partition_limit=limit),
        ordered=True,
    )

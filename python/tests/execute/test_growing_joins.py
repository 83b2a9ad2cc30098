"""Joins that give several times the rows of their sides: ranks share the result, though each could have the sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.compare import ORDINARY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions

ROWS, KEYS = 600, 7
SHARED = replace(ORDINARY, broadcast_limit=1000)
"""Results of a kilobyte are shared."""
PARTITIONED = replace(SHARED, partitions=3)
Side = Callable[[pl.LazyFrame], pl.LazyFrame]
SIDES: dict[str, Side] = {
    "tables": lambda rows: rows,
    "first rows": lambda rows: rows.sort("n").head(ROWS // 2),
    "groups": lambda rows: rows.group_by("k", "n").agg(pl.len()).select("k", "n"),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("growing") / "table.parquet"
    rows = pl.DataFrame({"k": [i * 5 % KEYS if i % 50 else None for i in range(ROWS)], "n": range(ROWS)})
    rows.write_parquet(path, row_group_size=100)
    return path


def check(query: pl.LazyFrame, nranks: int, options: ExecutionOptions, *, ordered: bool = False) -> list[int]:
    """Compare with Polars; return how many rows each rank has."""
    actual, outcomes = run(query, nranks, options)
    compare_answers(actual, query.collect(engine="streaming"), ordered=ordered)
    return [outcome.frame.height for outcome in outcomes]


@pytest.mark.parametrize("options", [SHARED, PARTITIONED])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_all_ranks_have_rows(
    how: Any, sides: str, nranks: int, options: ExecutionOptions, table: Path
) -> None:
    left, right = (SIDES[sides](pl.scan_parquet(table)) for _ in range(2))
    right = right.rename({"n": "m"})
    joined = left.join(right, on="k", how=how)
    heights = check(joined, nranks, options)
    assert min(heights) > sum(heights) / nranks / 4
    check(joined.sort("n", "m", "k", nulls_last=True), nranks, options, ordered=True)
    check(joined.group_by("n").agg(pl.col("m").median(), pl.len()), nranks, options)


@pytest.mark.parametrize("options", [SHARED, PARTITIONED])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("sides", SIDES)
def test_rows_of_a_cross_join_are_shared(
    sides: str, nranks: int, options: ExecutionOptions, table: Path
) -> None:
    left, right = (SIDES[sides](pl.scan_parquet(table)) for _ in range(2))
    joined = left.join(right.select(m="n").filter(pl.col("m") % 9 == 0), how="cross")
    heights = check(joined, nranks, options)
    assert min(heights) > sum(heights) / nranks / 4
    check(joined.sort("n", "m").with_row_index(), nranks, options, ordered=True)


@pytest.mark.parametrize("options", [SHARED, PARTITIONED])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("order", ["left", "right", "left_right", "right_left"])
def test_orders_are_kept(order: Any, sides: str, nranks: int, options: ExecutionOptions, table: Path) -> None:
    left, right = (SIDES[sides](pl.scan_parquet(table)).sort("n") for _ in range(2))
    both = left.join(right.rename({"n": "m"}), on="k", maintain_order=order)
    columns = {"left": ["n"], "right": ["m"]}.get(order, ["n", "m"])
    check(both.select(columns), nranks, options, ordered=True)


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_in_memory_frames(nranks: int, table: Path) -> None:
    rows = pl.read_parquet(table)
    joined = rows.lazy().join(rows.lazy().rename({"n": "m"}), on="k").filter(pl.col("n") != pl.col("m"))
    for options in (SHARED, PARTITIONED):
        (answer, _) = run(joined, nranks, options)
        expected = pl.concat([rows] * nranks).lazy()
        compare_answers(
            answer,
            expected.join(expected.rename({"n": "m"}), on="k")
            .filter(pl.col("n") != pl.col("m"))
            .collect(engine="streaming"),
            ordered=False,
        )


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_a_column_that_is_a_key_twice(nranks: int, table: Path) -> None:
    right = pl.scan_parquet(table).select("k", j="k", m="n")
    rows = pl.read_parquet(table)
    for options in (SHARED, PARTITIONED):
        for left, whole in ((pl.scan_parquet(table), rows), (rows.lazy(), pl.concat([rows] * nranks))):
            actual, _ = run(_twice(left, right), nranks, options)
            expected = _twice(whole.lazy(), right).collect(engine="streaming")
            compare_answers(actual, expected, ordered=False)


def _twice(left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
    return left.join(right, left_on=["k", "k"], right_on=["k", "j"], nulls_equal=True)


def test_a_small_result_is_on_every_rank(table: Path) -> None:
    rows = pl.scan_parquet(table)
    few = rows.filter(pl.col("n") < 5)
    _, outcomes = run(few.join(rows.unique("k").rename({"n": "m"}), on="k"), 2, ORDINARY)
    assert "REPLICATED" not in outcomes[0].explain()
    joined = rows.join(rows.rename({"n": "m"}), on="k")
    assert all("on every rank" in run(joined, 2, ORDINARY)[1][rank].explain() for rank in range(2))

"""Horizontal concatenations run on all ranks: an exchange brings rows with the same global position to one rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.local_transport import run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query

STRICT = replace(TINY, fallback_mode="raise")
OPTIONS = [STRICT, replace(PARTITIONED, fallback_mode="raise"), replace(ORDINARY, fallback_mode="raise")]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("horizontal")

    def table(name: str, rows: int, group: int) -> pl.LazyFrame:
        path = folder / f"{name}.parquet"
        numbers = pl.int_range(rows, eager=True)
        pl.DataFrame({f"{name}_n": numbers, f"{name}_s": (numbers * 7 % 11).cast(pl.String)}).write_parquet(
            path, row_group_size=group
        )
        return pl.scan_parquet(path)

    return {
        name: table(name, rows, group)
        for name, (rows, group) in {
            "a": (100, 9),
            "b": (100, 31),
            "c": (37, 5),
            "d": (0, 1),
            "e": (1, 1),
        }.items()
    }


def queries(t):
    a, b, c, d, e = (t[name] for name in "abcde")
    strict, extend = "horizontal", "horizontal_extend"
    yield pl.concat([a, b], how=strict), True
    yield pl.concat([a, b], how=extend), True
    yield pl.concat([c, a], how=extend), True
    yield pl.concat([a, c, d], how=extend), True
    yield pl.concat([d, c], how=extend), True
    yield pl.concat([a, e], how=extend), True
    yield pl.concat([a.filter(pl.col("a_n") % 3 == 0), b.filter(pl.col("b_n") > 80)], how=extend), True
    yield pl.concat([a.sort("a_s", "a_n", descending=True), b.reverse()], how=strict), True
    yield pl.concat([a, b.select("b_n")], how=strict).filter(pl.col("b_n") > 50).select("a_s"), True
    yield pl.concat([a, c], how=extend).group_by("c_s").agg(pl.col("a_n").sum(), pl.len()), False
    yield pl.concat([a.select("a_n"), b], how=strict).select(pl.len()), True
    yield pl.concat([a, b], how=strict).slice(30, 50), True
    yield pl.concat([a.group_by("a_s").agg(pl.col("a_n").sum()).sort("a_s"), c.head(11)], how=strict), True
    yield pl.concat([pl.concat([a, b], how=strict), c], how=extend).tail(70), True
    yield pl.concat([a.with_row_index("i"), b.select("b_n")], how=strict).with_row_index("k"), True
    yield pl.concat([a, b.select(pl.col("b_n").shift(1))], how=strict), True
    yield pl.concat([a.head(3).select(), c.head(1)], how=extend), True
    yield pl.concat([a.select(), c], how=extend), True
    yield pl.concat([a.filter(pl.col("a_n") < 9).select(), e, d], how=extend), True


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
def test_all_ranks(tables, nranks: int) -> None:
    for query, ordered in queries(tables):
        for options in OPTIONS:
            assert_like_polars(query, nranks, options, ordered=ordered)


def parts(query: pl.LazyFrame, options: ExecutionOptions = STRICT) -> tuple[list[int], str]:
    outcomes = assert_like_polars(query, 3, options)
    return [outcome.frame.height for outcome in outcomes], outcomes[0].explain()


def test_rows_of_the_longest_table_stay_where_they_are(tables) -> None:
    heights, plan = parts(pl.concat([tables["a"], tables["c"]], how="horizontal_extend"))
    assert heights == [36, 36, 28]  # its row groups
    assert plan.count("EXCHANGE by position") == 2


def test_each_rank_has_an_equal_part_if_one_had_too_much(tables) -> None:
    mostly_first = tables["a"].filter((pl.col("a_n") < 36) | (pl.col("a_n") % 16 == 0))
    heights, _ = parts(pl.concat([mostly_first, tables["c"].head(3)], how="horizontal_extend"))
    assert heights == [13, 13, 14]


def test_each_partition_has_rows(tables) -> None:
    options = replace(PARTITIONED, fallback_mode="raise")
    heights, _ = parts(pl.concat([tables["a"], tables["c"]], how="horizontal_extend"), options)
    assert sum(heights) == 100
    assert max(heights) <= 50


def test_tables_of_other_heights_are_the_error_of_polars(tables) -> None:
    query = pl.concat([tables["a"], tables["c"]], how="horizontal")
    with pytest.raises(pl.exceptions.ShapeError) as expected:
        query.collect()
    with pytest.raises(pl.exceptions.ShapeError) as found:
        run_ranks(2, lambda transport: run_query(query, transport, options=STRICT))
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_frames_that_lie_on_some_ranks() -> None:
    def query(rank: int | None) -> pl.LazyFrame:
        parts = [[1, 2, 3, 4, 5], [], [6]], [[], [10, 20], [30, 40]]
        a, b = ([v for part in each for v in part] if rank is None else each[rank] for each in parts)
        return pl.concat(
            [
                pl.LazyFrame({"a": pl.Series(a, dtype=pl.Int64)}),
                pl.LazyFrame({"b": pl.Series(b, dtype=pl.Int64)}),
            ],
            how="horizontal_extend",
        )

    outcomes = run_ranks(3, lambda t: run_query(query(t.rank), t, options=STRICT))
    assert pl.concat([outcome.frame for outcome in outcomes]).equals(query(None).collect())

"""The physical plan as text, and which exchanges it holds."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.execute.explain import explain_query
from cudf_polars.execute.options import ExecutionOptions

TINY = ExecutionOptions.tiny("silent")


@pytest.fixture
def scan(tmp_path: Path) -> pl.LazyFrame:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1, 2] * 50, "b": range(100)}).write_parquet(path)
    return pl.scan_parquet(path)


def _exchanges(text: str) -> list[str]:
    return re.findall(
        r"^\d+: (SHUFFLE|BROADCAST|GATHER|RANGE EXCHANGE|ORDERED CONCATENATION)", text, re.MULTILINE
    )


def test_group_by_is_aggregated_before_and_after_the_shuffle(scan: pl.LazyFrame, tmp_path: Path) -> None:
    text = explain_query(scan.group_by("a").agg(pl.col("b").sum()), 2, options=TINY)
    assert text.replace(str(tmp_path), "DIR") == (
        "On 2 ranks, by Polars, as estimated before a run.\n"
        "1: MATERIALIZE (partial groups) -> arbitrary; about 10 rows, 160 B\n"
        "  PARTIAL GROUPBY by a\n"
        "    PARQUET SCAN DIR/t.parquet\n"
        "2: SHUFFLE by hash(a) -> hash(a); about 10 rows, 160 B\n"
        "  <- 1\n"
        "RESULT: hash(a); about 10 rows, 160 B\n"
        "  OUTPUTS\n"
        "    FINAL GROUPBY by a\n"
        "      <- 2"
    )


def test_row_wise_query_has_no_exchange(scan: pl.LazyFrame) -> None:
    assert (
        _exchanges(explain_query(scan.filter(pl.col("a") > 1).select(pl.col("b") + 1), 4, options=TINY)) == []
    )


def test_group_by_of_the_join_key_needs_no_second_shuffle(scan: pl.LazyFrame) -> None:
    query = scan.join(scan.select("a", c="b"), on="a").group_by("a").agg(pl.col("c").sum())
    assert _exchanges(explain_query(query, 2, options=TINY)) == ["SHUFFLE", "SHUFFLE"]


def test_second_join_by_the_same_key_moves_one_side_only(scan: pl.LazyFrame) -> None:
    query = scan.join(scan.select("a", c="b"), on="a").join(scan.select("a", d="b"), on="a")
    assert _exchanges(explain_query(query, 2, options=TINY)) == ["SHUFFLE"] * 3


def test_small_side_is_copied(scan: pl.LazyFrame) -> None:
    options = ExecutionOptions(read_everywhere_limit=0)
    query = scan.join(scan.filter(pl.col("b") > 3).select("a", c="b"), on="a")
    assert _exchanges(explain_query(query, 2, options=options)) == ["BROADCAST"]


def test_small_table_is_read_by_every_rank(scan: pl.LazyFrame) -> None:
    query = scan.group_by("a").agg(pl.col("b").sum()).join(scan.select("a", c="b"), on="a")
    text = explain_query(query, 2)
    assert "on every rank" in text
    assert _exchanges(text) == ["GATHER"]


def test_sort_is_a_range_exchange_and_its_head_a_gather(scan: pl.LazyFrame) -> None:
    assert _exchanges(explain_query(scan.sort("b"), 2, options=TINY)) == ["RANGE EXCHANGE"]
    assert _exchanges(explain_query(scan.sort("b").head(2), 2, options=TINY)) == ["GATHER"]


def test_order_costs_only_where_it_matters(scan: pl.LazyFrame) -> None:
    both = pl.concat([scan.sort("b"), scan])
    assert _exchanges(explain_query(both, 2, options=TINY)) == ["RANGE EXCHANGE", "ORDERED CONCATENATION"]
    assert _exchanges(explain_query(both.select(pl.col("b").sum()), 2, options=TINY)) == ["GATHER"]


def test_scans_are_concatenated_where_they_are_read(scan: pl.LazyFrame) -> None:
    assert _exchanges(explain_query(pl.concat([scan, scan.filter(pl.col("a") > 1)]), 2, options=TINY)) == []


def test_fallback_is_named(scan: pl.LazyFrame) -> None:
    text = explain_query(scan.select(pl.col("b").ewm_mean(alpha=0.5)), 2, options=TINY)
    assert "On one rank: SELECT" in text


def test_one_rank_is_one_fragment(scan: pl.LazyFrame) -> None:
    assert explain_query(scan.sort("b"), 1) == "One fragment on one rank: the query as Polars runs it."


def test_partitions_are_told_on_one_rank_and_on_several(scan: pl.LazyFrame) -> None:
    for nranks in (1, 2):
        text = explain_query(scan.sort("b"), nranks, options=ExecutionOptions(memory=64, small_limit=0))
        assert re.search(r"Each rank works on \d+ partitions", text)
        assert _exchanges(text) == ["RANGE EXCHANGE"]
    assert explain_query(scan.sort("b"), 1, options=ExecutionOptions(memory=1 << 30)).startswith(
        "One fragment"
    )


def test_joins_that_grow_are_shared(scan: pl.LazyFrame) -> None:
    query = scan.join(scan.select("a", c="b"), on="a")
    both, one = (
        explain_query(query, 2, options=ExecutionOptions(broadcast_limit=limit)) for limit in (0, 10)
    )
    assert both.count("on every rank") == 2
    assert one.count("on every rank") == 1


def test_gpus_are_named(scan: pl.LazyFrame) -> None:
    assert explain_query(scan.sort("b"), 2, options=TINY, on_cpu=False).startswith("On 2 ranks, by GPUs")

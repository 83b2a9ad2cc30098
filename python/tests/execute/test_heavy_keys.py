"""Heavy keys of joins: their rows are spread over all partitions, and those that they match are copied."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import TINY, assert_like_polars

from cudf_polars.execute.key_counts import frequent_anywhere, most_frequent
from cudf_polars.execute.paths import SPREAD
from cudf_polars.execute.run import QueryOutcome
from cudf_polars.lower.findings import KeyShare
from cudf_polars.lower.spreading import HeavyKeys, key_hash

pytestmark = pytest.mark.filterwarnings("ignore")

NAN = float("nan")
OPTIONS = replace(TINY, filter_keys=0)
ROWS = 6000
KINDS: dict[str, tuple[pl.DataType, object]] = {
    "integers": (pl.Int64(), 7),
    "small integers": (pl.UInt16(), 7),
    "dates": (pl.Date(), 7),
    "texts": (pl.String(), "7"),
    "not a number": (pl.Float64(), NAN),
    "zero": (pl.Float32(), 0.0),
    "null": (pl.Int32(), None),
}


def spread(outcomes: Sequence[QueryOutcome]) -> bool:
    (text,) = {outcome.explain() for outcome in outcomes}
    says = "spread over all" in text
    assert says == ("copied to all" in text)
    return says


def tables(folder: Path, kind: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return files: one in which a third of the rows has one key, and one with a row for most keys."""
    dtype, heavy = KINDS[kind]
    numbers = pl.int_range(1, ROWS + 1, eager=True)
    key = (numbers * 7 % 1000).cast(dtype if dtype != pl.Date() else pl.Int32()).cast(dtype)
    one = pl.Series([heavy], dtype=dtype)
    large = pl.DataFrame({"k": key.zip_with(numbers % 3 != 0, one), "a": numbers})
    if kind == "zero":
        # Which is equal to the other zero.
        negative = pl.col("a") % 2 == 0
        large = large.with_columns(
            pl.when((pl.col("k") == 0) & negative).then(-0.0).otherwise("k").alias("k")
        )
    keys = pl.concat([key.unique().filter(key.unique().is_not_null()).slice(100), one]).unique()
    small = pl.DataFrame({"k": keys}).with_row_index("b")
    large.write_parquet(folder / "large.parquet", row_group_size=500)
    small.write_parquet(folder / "small.parquet", row_group_size=300)
    return pl.scan_parquet(folder / "large.parquet"), pl.scan_parquet(folder / "small.parquet")


CONFIGURATIONS = [(2, 1, False), (3, 4, True), (1, 32, False), (2, 8, True)]
"""Ranks, partitions of each, and whether the sides are turned."""


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_polars(kind: str, how: str, tmp_path: Path) -> None:
    large, small = tables(tmp_path, kind)
    first = list(KINDS).index(kind) % 2
    for (nranks, partitions, turned), nulls_equal in zip(
        CONFIGURATIONS[first::2], (False, True), strict=True
    ):
        sides = (small, large) if turned else (large, small)
        query = sides[0].join(sides[1], on="k", how=how, nulls_equal=nulls_equal)
        options = replace(OPTIONS, partitions=partitions)
        outcomes = assert_like_polars(query, nranks, options, ordered=False)
        preserved = {"full": (True, True), "right": (True, False)}.get(how, (False, how != "inner"))
        assert spread(outcomes) != preserved[turned], outcomes[0].explain()
        assert all(bool(outcome.paths.counts[SPREAD]) == spread(outcomes) for outcome in outcomes)


def test_ranks_have_about_as_many_rows(tmp_path: Path) -> None:
    large, small = tables(tmp_path, "integers")
    for nranks in (2, 3, 5):
        outcomes = assert_like_polars(large.join(small, on="k"), nranks, OPTIONS, ordered=False)
        assert spread(outcomes)
        heights = [outcome.frame.height for outcome in outcomes]
        assert max(heights) <= 1.15 * sum(heights) / nranks, heights


def test_two_keys_and_computed_ones(tmp_path: Path) -> None:
    large, small = tables(tmp_path, "integers")
    large = large.with_columns(j=pl.col("a") % 2)
    small = pl.concat([small.with_columns(j=pl.lit(j, dtype=pl.Int64)) for j in (0, 1)])
    small.collect().write_parquet(tmp_path / "both.parquet", row_group_size=100)
    both = pl.scan_parquet(tmp_path / "both.parquet")
    options = replace(OPTIONS, partitions=4)
    outcomes = assert_like_polars(large.join(both, on=["k", "j"]), 3, options, ordered=False)
    assert spread(outcomes)
    computed = large.join(small.filter(pl.col("j") == 0), left_on=pl.col("k") + 1, right_on=pl.col("k") + 1)
    assert_like_polars(computed, 2, options, ordered=False)


def test_keys_that_are_heavy_on_both_sides_are_left(tmp_path: Path) -> None:
    large, _ = tables(tmp_path, "integers")
    few = large.filter(pl.col("a") < 1000).select("k", b=pl.col("a"))
    few.collect().write_parquet(tmp_path / "few.parquet")
    outcomes = assert_like_polars(
        large.join(pl.scan_parquet(tmp_path / "few.parquet"), on="k"), 2, OPTIONS, ordered=False
    )
    assert not spread(outcomes)


def test_orders_and_checks_are_kept(tmp_path: Path) -> None:
    large, small = tables(tmp_path, "integers")
    outcomes = assert_like_polars(large.join(small, on="k", maintain_order="left"), 2, OPTIONS)
    assert not spread(outcomes)
    outcomes = assert_like_polars(large.join(small, on="k", validate="m:1"), 2, OPTIONS, ordered=False)
    assert not spread(outcomes)


def test_what_follows_moves_rows_again(tmp_path: Path) -> None:
    """Rows with a heavy key are on all ranks: a group-by of the key may not take them for being together."""
    large, small = tables(tmp_path, "integers")
    joined = large.join(small, on="k")
    for nranks, partitions in itertools.product((1, 2, 3), (1, 32)):
        options = replace(OPTIONS, partitions=partitions)
        query = joined.group_by("k").agg(pl.len(), pl.col("a").median())
        assert_like_polars(query, nranks, options, ordered=False)
        query = joined.join(small.with_columns(c=pl.col("b") * 2), on="k", how="left")
        assert_like_polars(query, nranks, options, ordered=False)
        assert_like_polars(joined.select("k").unique(), nranks, options, ordered=False)


def test_rows_of_joins_are_sampled_too(tmp_path: Path) -> None:
    large, small = tables(tmp_path, "integers")
    query = (
        large.filter(pl.col("a") > 3).group_by("a").agg(pl.col("k").first()).join(small, on="k", how="left")
    )
    outcomes = assert_like_polars(query, 2, OPTIONS, ordered=False)
    assert spread(outcomes)


@pytest.mark.parametrize("turn", [0, 1, 5])
def test_rows_are_addressed(turn: int) -> None:
    rows = pl.DataFrame({"k": [1, 2, 1, 1, None, 3, 1, 1, 1], "v": range(9)})
    hashes = rows.filter(pl.col("k") == 1).head(1).select(key_hash([pl.col("k")])).to_series()
    spread_rows = HeavyKeys(hashes, copied=False).addressed(rows, ["k"], 6, "to", turn)
    copied_rows = HeavyKeys(hashes, copied=True).addressed(rows, ["k"], 6, "to", turn)
    assert spread_rows.drop("to").equals(rows)
    of_one = pl.col("k").eq_missing(1)
    assert spread_rows.filter(of_one)["to"].to_list() == [(turn + n) % 6 for n in range(6)]
    to = Counter(copied_rows.filter(of_one).select("v", "to").iter_rows())
    assert to == Counter(itertools.product([0, 2, 3, 6, 7, 8], range(6)))
    assert spread_rows.filter(~of_one).equals(copied_rows.filter(~of_one))
    assert copied_rows.schema == spread_rows.schema == {**rows.schema, "to": pl.UInt32}


def test_frequent_keys_are_counted() -> None:
    ranks = [
        [pl.DataFrame({"k": [5] * 60 + list(range(100, 140))}), pl.DataFrame({"k": [6, 6, 5]})],
        [pl.DataFrame({"k": [6] * 50 + list(range(50))})],
        [],
    ]
    hashed = key_hash([pl.col("k")])
    asked = KeyShare(0.2)
    found = [most_frequent(iter(batches), hashed, asked) for batches in ranks]
    assert [rows for _, rows in found] == [103, 100, 0]

    def told(value: bytes) -> list[bytes]:
        import pickle

        return [pickle.dumps(each) for each in found]

    by_hash = frequent_anywhere(found[0], asked.least, told)
    hashes = pl.DataFrame({"k": [5, 6]}).select(hashed).to_series().to_list()
    assert by_hash == {hashes[0]: 61, hashes[1]: 51}
    some = most_frequent(iter(ranks[0]), hashed, KeyShare(0.0, frozenset(hashes)))
    assert some == ({hashes[0]: 61, hashes[1]: 2}, 103)

"""Filters from facts: the keys of a join's small side leave out rows of the other side before these move."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run
from execute.local_transport import run_ranks

from cudf_polars.execute.bloom_filter import BloomFilter
from cudf_polars.execute.explain import explain_query
from cudf_polars.execute.keys import KeySet
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.paths import BLOOM_FILTER
from cudf_polars.execute.run import QueryOutcome, run_query
from cudf_polars.lower.key_filters import key_predicate

pytestmark = pytest.mark.filterwarnings("ignore")

NAN = float("nan")
SHUFFLED = replace(ORDINARY, broadcast_limit=64 << 10, filter_least=0, small_limit=0, read_everywhere_limit=0)
"""As users run it, but that small tables are shuffled."""
KEYS: dict[str, tuple[pl.DataType, list[object], list[object]]] = {
    "integers": (pl.Int64(), [None, -1, 0, 1, 2, 2, 7, 100, None], [2, 7, 8, None, 2]),
    "small integers": (pl.UInt8(), [None, 0, 1, 2, 255, 2], [255, 2, None]),
    "floats": (pl.Float64(), [None, 0.0, -0.0, NAN, -NAN, 1.5, 2.5, NAN], [-0.0, NAN, 2.5, None]),
    "floats without zero": (pl.Float32(), [None, 0.0, -0.0, NAN, 1.5], [1.5, None]),
    "dates": (pl.Date(), [None, *(dt.date(2024, 1, d) for d in range(1, 9))], [dt.date(2024, 1, 3), None]),
    "times": (
        pl.Datetime("ns"),
        [None, *(dt.datetime(2024, 1, d) for d in range(1, 9))],
        [dt.datetime(2024, 1, 3)],
    ),
    "durations": (pl.Duration("us"), [None, *(dt.timedelta(d) for d in range(9))], [dt.timedelta(3), None]),
    "texts": (pl.String(), [None, "", "a", "b", "ab", "é"], ["", "ab", None]),
    "decimals": (pl.Decimal(10, 2), [None, 1, 2, 3], [2, None]),
    "categories": (pl.Enum(["x", "y", "z"]), [None, "x", "y", "z"], ["y", None]),
    "no partner": (pl.Int32(), [None, 1, 2, 3, 4], [9]),
    "nothing": (pl.Int32(), [None, 1, 2, 3, 4], []),
    "only null": (pl.Int32(), [None, 1, 2, 3, 4], [None]),
}


def sides(kind: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a large and a small table with a column k."""
    dtype, large, small = KEYS[kind]
    many = pl.Series("k", large * 4, dtype=dtype, strict=False)
    few = pl.Series("k", small, dtype=dtype, strict=False)
    return (
        many.to_frame().with_row_index("a"),
        few.to_frame().with_row_index("b"),
    )


def on_disk(folder: Path, *frames: pl.DataFrame) -> list[pl.LazyFrame]:
    """Return tables of files: frames would be each rank's own."""
    for number, frame in enumerate(frames):
        frame.write_parquet(folder / f"{number}.parquet")
    return [pl.scan_parquet(folder / f"{number}.parquet") for number in range(len(frames))]


def filters(outcomes: Sequence[QueryOutcome]) -> list[str]:
    (text,) = {outcome.explain() for outcome in outcomes}
    return re.findall(r"KEEP (\w+) in ", text)


@pytest.mark.parametrize("nulls_equal", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("kind", KEYS)
def test_answers_are_those_of_polars(kind: str, how: str, nulls_equal: bool, tmp_path: Path) -> None:
    large, small = on_disk(tmp_path, *sides(kind))
    for nranks, options, left, right in (
        (2, TINY, large, small),
        (3, PARTITIONED, small, large),
        (2, replace(TINY, filter_keys=1), large, small),  # a Bloom filter of two keys or more
    ):
        query = left.join(right, on="k", how=how, nulls_equal=nulls_equal)
        outcomes = assert_like_polars(query, nranks, options, ordered=False)
        preserved = {"left": left, "right": right, "anti": left, "full": large}.get(how)
        filtered = kind not in ("decimals", "categories") and preserved is not large
        if kind != "nothing":  # which every rank reads for itself
            assert bool(filters(outcomes)) == filtered, outcomes[0].explain()


def test_keys_are_compared_as_joins_compare() -> None:
    for kind, (dtype, *_) in KEYS.items():
        if dtype.is_decimal() or isinstance(dtype, pl.Enum):
            continue
        large, small = sides(kind)
        values = small["k"].drop_nulls().unique()
        bounds = (values.min(), values.max()) if dtype.is_integer() and values.len() else None
        has_null = bool(small["k"].null_count())
        in_filter = BloomFilter.sized(1000)
        in_filter.insert(values)
        for nulls_equal in (False, True):
            expected = large.join(small, on="k", how="semi", nulls_equal=nulls_equal, maintain_order="left")
            for keys in (
                KeySet(values.len(), values, bounds, has_null),
                KeySet(values.len(), None, bounds, has_null, in_filter),
                KeySet(values.len(), None, None, has_null, in_filter),
            ):
                kept = large.filter(key_predicate("k", keys, nulls_equal=nulls_equal))
                assert kept["a"].to_list() == expected["a"].to_list(), (kind, nulls_equal)


def large_and_small(
    folder: Path, *, rows: int = 40_000, keys: int = 100
) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return tables of files: one with eight rows for each k, and one with one, of which ``keys`` are used."""
    pl.DataFrame({"k": range(rows)}).with_columns(v=pl.col("k") * 3).write_parquet(folder / "small.parquet")
    large = pl.DataFrame({"k": [k for k in range(rows) for _ in range(8)]}).with_columns(w=pl.col("k") % 11)
    large.write_parquet(folder / "large.parquet", row_group_size=rows)
    small = pl.scan_parquet(folder / "small.parquet").filter(pl.col("v") % (3 * (rows // keys)) == 0)
    return pl.scan_parquet(folder / "large.parquet"), small


def rows_sent(text: str) -> list[int]:
    """Return how many rows were sent by hash, of each exchange."""
    lines = [line for line in text.splitlines() if ": SHUFFLE by hash" in line]
    found = [re.search(r"; a rank ([\d/ ]+) rows", line) for line in lines]
    means = [each[1].split(" / ") for each in found if each]
    return [2 * int(values[len(values) // 2]) for values in means]


def test_rows_without_a_partner_do_not_move(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=10_000)
    query = large.join(small, on="k").group_by("w").agg(pl.col("v").sum())
    outcomes = assert_like_polars(query, 2, SHUFFLED, ordered=False)
    assert filters(outcomes) == ["k"]
    text = outcomes[0].explain()
    assert "KEEP k in 10000 keys from 0 to 39996 of the other side, about 25.0%" in text
    assert sum(rows_sent(text)) == 10_000 + 80_000 + 2 * 11
    off = assert_like_polars(query, 2, replace(SHUFFLED, filter_keys=0), ordered=False)
    assert filters(off) == []
    assert sum(rows_sent(off[0].explain())) == 10_000 + 320_000 + 2 * 11


def test_filters_are_made_when_they_leave_out_enough(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=40_000)
    outcomes = assert_like_polars(large.join(small, on="k"), 2, SHUFFLED, ordered=False)
    assert filters(outcomes) == []


def test_keys_that_a_sample_has_all_of_filter_nothing(tmp_path: Path) -> None:
    # By their numbers of rows, the tables could have 40,000 different keys; there are ten.
    rows = pl.DataFrame({"k": [k % 10 for k in range(40_000)]}).with_row_index("a")
    some = rows.with_columns(v=pl.col("a") % 100)
    large, small = on_disk(tmp_path, rows, some)
    query = large.join(small.filter(pl.col("v") < 10).group_by("k").agg(pl.col("a").max()), on="k")
    options = replace(SHUFFLED, broadcast_limit=1)
    outcomes = assert_like_polars(query, 2, options, ordered=False)
    assert filters(outcomes) == []


def test_of_too_many_keys_the_bounds_filter(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=40_000)
    few = replace(SHUFFLED, filter_keys=1000, bloom_filter_bytes=0, broadcast_limit=1)
    some = small.filter(pl.col("k") < 5000)
    outcomes = assert_like_polars(large.join(some, on="k"), 2, few, ordered=False)
    assert (
        "KEEP k in the bounds of the keys from 0 to 4999 of the other side, about 12.5%"
        in outcomes[0].explain()
    )


@pytest.mark.parametrize("nranks", [1, 2, 5])
def test_many_keys_are_in_a_bloom_filter(nranks: int, tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=10_000)
    large.collect().sample(fraction=1, shuffle=True, seed=1).write_parquet(tmp_path / "shuffled.parquet")
    options = replace(SHUFFLED, filter_keys=1000, broadcast_limit=1, partitions=2)
    query = pl.scan_parquet(tmp_path / "shuffled.parquet").join(small, on="k").group_by("w").agg(pl.len())
    outcomes = assert_like_polars(query, nranks, options, ordered=False)
    text = outcomes[0].explain()
    found = re.search(
        r"KEEP k in a Bloom filter of (\d+) keys from 0 to 39996 of the other side, about", text
    )
    assert found, text
    assert 9_900 <= int(found[1]) <= 10_100
    assert all(outcome.paths.counts[BLOOM_FILTER] for outcome in outcomes)
    if nranks == 2:
        # 80,000 rows have a partner, of 320,000.
        assert 90_000 <= sum(rows_sent(text)[:2]) <= 92_500


def test_ranks_have_more_or_fewer_keys_than_the_limit(tmp_path: Path) -> None:
    """A filter is made of what one rank has in a filter, another as values, and others not at all."""
    large = pl.DataFrame({"k": range(20_000)}).with_columns(v=pl.col("k") % 7)
    large.write_parquet(tmp_path / "large.parquet", row_group_size=1000)
    few = pl.DataFrame({"k": range(8000)}).with_columns(w=pl.col("k") % 100)
    few.write_parquet(tmp_path / "few.parquet", row_group_size=1500)
    left = pl.scan_parquet(tmp_path / "large.parquet")
    right = pl.scan_parquet(tmp_path / "few.parquet").filter((pl.col("k") < 2000) | (pl.col("w") == 7))
    options = replace(SHUFFLED, filter_keys=600, broadcast_limit=1)
    for nranks in (2, 3):
        outcomes = assert_like_polars(left.join(right, on="k"), nranks, options, ordered=False)
        assert "KEEP k in a Bloom filter of " in outcomes[0].explain()


def test_keys_that_fill_no_filter_are_left_alone(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=10_000)
    options = replace(SHUFFLED, filter_keys=1000, bloom_filter_bytes=6000, broadcast_limit=1)
    outcomes = assert_like_polars(large.join(small, on="k"), 2, options, ordered=False)
    assert filters(outcomes) == []


def test_a_side_that_is_copied_needs_no_filter_of_ours(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path)
    options = replace(SHUFFLED, broadcast_limit=1 << 20)
    outcomes = assert_like_polars(large.join(small, on="k"), 2, options, ordered=False)
    assert filters(outcomes) == []


def test_one_rank_in_partitions_filters_too(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=10_000)
    large.collect().reverse().write_parquet(tmp_path / "reversed.parquet", row_group_size=40_000)
    options = replace(SHUFFLED, partitions=3)
    for table, filtered in ((large, []), (pl.scan_parquet(tmp_path / "reversed.parquet"), ["k"])):
        # A file that is sorted by the key is read by its ranges: its rows do not move.
        outcomes = assert_like_polars(table.join(small, on="k"), 1, options, ordered=False)
        assert filters(outcomes) == filtered


def test_what_is_validated_is_not_filtered(tmp_path: Path) -> None:
    large, small = on_disk(tmp_path, *sides("integers"))
    query = small.unique("k").join(large, on="k", validate="1:m")
    assert filters(run(query, 2)[1]) == []


def test_several_keys_and_order(tmp_path: Path) -> None:
    left = pl.DataFrame({"k": [1, 2, 3, 4] * 20, "j": [1, 2] * 40}).with_row_index("a")
    left, right = on_disk(tmp_path, left, pl.DataFrame({"k": [4, 2], "j": [2, 2], "b": [7, 8]}))
    query = left.join(right, on=["k", "j"], maintain_order="left")
    outcomes = assert_like_polars(query, 3)
    assert sorted(filters(outcomes)) == ["j", "k"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_column_is_a_key_twice(turned: bool, tmp_path: Path) -> None:
    """Polars makes a filter of this by its own, unless it is told not to move filters."""
    table = pl.DataFrame({"k": [1, 2, 3, 5] * 20, "j": [1, 5] * 40}).with_row_index("a")
    sides = on_disk(tmp_path, table, pl.DataFrame({"x": [1, 5, 4], "b": [7, 8, 9]}))
    keys = [["k", "j"], ["x", "x"]]
    if turned:
        sides.reverse()
        keys.reverse()
    query = sides[0].join(sides[1], left_on=keys[0], right_on=keys[1])
    flags = pl.QueryOptFlags(predicate_pushdown=False)
    for nranks, options in itertools.product((2, 3), (SHUFFLED, TINY)):
        outcomes = run_ranks(
            nranks, lambda transport, o=options: run_query(query, transport, optimizations=flags, options=o)
        )
        assert sorted(pl.concat(o.frame for o in outcomes).rows()) == sorted(query.collect().rows())


def test_filters_are_in_the_plan_before_a_run(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=10_000)
    assert "KEEP k in " in explain_query(large.join(small, on="k"), 2, options=SHUFFLED)
    assert "KEEP k in " not in explain_query(
        large.join(small, on="k"), 2, options=ExecutionOptions(filter_keys=0, filter_least=0)
    )

"""`merge_sorted` runs on all ranks if its inputs are sorted; if not, one rank merges them, with Polars' rows."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run
from polars.testing import assert_frame_equal

STRICT = replace(TINY, fallback_mode="raise")
KEYS = {
    "Int64": list(range(9)),
    "Float64": [-1.5, -0.0, 0.0, 1.0, 2.5, float("inf"), float("nan")],
    "String": ["", "B", "a", "b", "ba", "ä"],
    "Boolean": [False, True],
    "Date": [pl.Series([n]).cast(pl.Date)[0] for n in range(-3, 5)],
    "Binary": [b"", b"\x00", b"a", b"\xff"],
}


def table(rng: random.Random, kind: str, side: str, nulls: str, rows: int) -> pl.DataFrame:
    values = KEYS[kind]
    numbers = sorted(rng.randrange(len(values)) for _ in range(rows))
    keys = [values[number] for number in numbers]
    some = [None] * rng.randrange(1, 4)
    keys = {"none": keys, "first": some + keys, "last": keys + some}[nulls]
    return pl.DataFrame(
        {"k": pl.Series(keys, dtype=getattr(pl, kind)), "row": [f"{side}{n}" for n in range(len(keys))]}
    )


def merged(left: pl.DataFrame, right: pl.DataFrame, nulls_last: bool) -> pl.DataFrame:
    return pl.concat([left, right]).sort("k", nulls_last=nulls_last, maintain_order=True)


@pytest.mark.parametrize("nranks", [2, 5])
@pytest.mark.parametrize("nulls", ["none", "first", "last"])
@pytest.mark.parametrize("kind", KEYS)
def test_sorted_tables(kind: str, nulls: str, nranks: int, tmp_path) -> None:
    """With the left row first among equal keys: Polars says so, and does not always do so for nulls."""
    rng = random.Random(f"{kind} {nulls} {nranks}")
    for number, (few, many) in enumerate([(3, 40), (40, 40), (25, 1)]):
        left, right = table(rng, kind, "l", nulls, few), table(rng, kind, "r", nulls, many)
        paths = [tmp_path / f"{side}{number}.parquet" for side in "lr"]
        left.write_parquet(paths[0], row_group_size=5)
        right.write_parquet(paths[1], row_group_size=7)
        query = pl.scan_parquet(paths[0]).merge_sorted(pl.scan_parquet(paths[1]), "k", maintain_order=True)
        for options in (STRICT, replace(PARTITIONED, fallback_mode="raise"), ORDINARY):
            answer, _ = run(query, nranks, options)
            assert_frame_equal(answer, merged(left, right, nulls == "last"))
            assert_frame_equal(answer.select("k"), query.collect(engine="streaming").select("k"))


@pytest.mark.parametrize("nranks", [2, 3])
def test_several_keys(nranks: int, tmp_path) -> None:
    rng = random.Random(nranks)
    tables = [
        pl.DataFrame(
            {"a": [rng.randrange(4) for _ in range(60)], "b": [rng.choice("xyz") for _ in range(60)]}
        )
        .sort("a", "b")
        .with_row_index()
        for _ in range(2)
    ]
    scans = []
    for number, rows in enumerate(tables):
        rows.write_parquet(tmp_path / f"{number}.parquet", row_group_size=7)
        scans.append(pl.scan_parquet(tmp_path / f"{number}.parquet"))
    query = scans[0].merge_sorted(scans[1], ["a", "b"], maintain_order=True)
    assert_like_polars(query, nranks, STRICT)
    assert_like_polars(query.head(17), nranks, STRICT)
    assert_like_polars(query.with_row_index("n").filter(pl.col("n") % 3 == 0), nranks, STRICT)


SHAPES = {
    "descending": ([3, 2, 1], [5, 4]),
    "one value out of order": ([1, 2, 4, 3, 5, 6], [1, 2]),
    "nulls on both ends": ([None, 1, None], [2]),
    "nulls in the middle": ([1, None, 2], [2]),
    "first and last": ([None, 1], [0, 2, None]),
    "nulls alone": ([None, None], [1, 2]),
    "nulls alone, last": ([1, 2], [None]),
    "only nulls": ([None], [None, None]),
}


@pytest.mark.parametrize("nranks", [2, 3, 5])
@pytest.mark.parametrize("cut", [True, False], ids=["many row groups", "one"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tables_in_no_one_order_are_merged_by_one_rank(shape: str, cut: bool, nranks: int, tmp_path) -> None:
    scans = []
    for number, keys in enumerate(SHAPES[shape]):
        path = tmp_path / f"{number}.parquet"
        rows = pl.DataFrame({"k": pl.Series(keys, dtype=pl.Int64)}).with_row_index()
        rows.write_parquet(path, row_group_size=1 if cut else 100)
        scans.append(pl.scan_parquet(path))
    query = scans[0].merge_sorted(scans[1], "k")
    # The order that Polars gives depends on the batches that the rows come in.
    (outcome, *_) = assert_like_polars(query, nranks, ordered=False)
    assert outcome.fallbacks == [
        "MERGESORTED (it has no distributed form: its inputs are not sorted in one order)"
    ]


@pytest.mark.parametrize("sides", [([], []), ([], [1, 2]), ([1, None], []), ([1], [2])])
def test_few_rows(sides: tuple[list[int], list[int]], tmp_path) -> None:
    scans = []
    for number, keys in enumerate(sides):
        path = tmp_path / f"{number}.parquet"
        pl.DataFrame({"k": pl.Series(keys, dtype=pl.Int64)}).write_parquet(path)
        scans.append(pl.scan_parquet(path))
    for nranks in (2, 5):
        assert_like_polars(scans[0].merge_sorted(scans[1], "k"), nranks, STRICT)


def test_nobody_asks_for_the_order(tmp_path) -> None:
    rows = pl.DataFrame({"k": [3, 1, 2], "v": [1, 2, 3]})
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    scan = pl.scan_parquet(tmp_path / "rows.parquet")
    query = scan.merge_sorted(scan.filter(pl.col("v") > 1), "k").group_by("k").agg(pl.col("v").sum())
    assert_like_polars(query, 2, STRICT, ordered=False)


@pytest.mark.parametrize(
    "dtype", [pl.Enum(["b", "a"]), pl.Categorical(), pl.Decimal(10, 2), pl.Time()], ids=str
)
def test_types_of_keys_with_an_order_of_their_own(dtype: pl.DataType, tmp_path) -> None:
    keys = ["b", "a", "b", "a"] if dtype in (pl.Enum, pl.Categorical) else [3, 1, 2, 1]
    rows = pl.DataFrame({"k": pl.Series(keys).cast(dtype)}).sort("k")
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=1)
    scan = pl.scan_parquet(tmp_path / "rows.parquet")
    assert_like_polars(scan.merge_sorted(scan, "k"), 3, STRICT)
    assert_like_polars(scan.sort("k").merge_sorted(scan.sort("k"), "k"), 3, STRICT)


def shares(left: pl.LazyFrame, right: pl.LazyFrame) -> tuple[list[int], str]:
    """Return the rows of each of four ranks, and the plan."""
    query = left.merge_sorted(right, "k")
    answer, outcomes = run(query, 4, STRICT)
    assert_frame_equal(answer.select("k"), query.collect(engine="streaming").select("k"))
    assert sorted(answer["row"]) == sorted(pl.concat([left, right]).collect()["row"])
    return [outcome.frame.height for outcome in outcomes], outcomes[0].explain()


def numbered(folder, name: str, keys: list[int]) -> pl.LazyFrame:
    path = folder / f"{name}.parquet"
    rows = pl.DataFrame({"k": keys, "row": [f"{name}{n}" for n in range(len(keys))]})
    rows.write_parquet(path, row_group_size=10)
    return pl.scan_parquet(path)


def test_each_rank_keeps_its_part_of_the_left_table(tmp_path) -> None:
    left, right = numbered(tmp_path, "l", list(range(80))), numbered(tmp_path, "r", list(range(0, 80, 4)))
    heights, plan = shares(left, right)
    assert heights == [25, 25, 25, 25]
    assert "SORT by" not in plan


def test_a_table_behind_another_is_spread(tmp_path) -> None:
    left, right = numbered(tmp_path, "l", list(range(80))), numbered(tmp_path, "r", list(range(80, 160)))
    heights, _ = shares(left, right)
    assert max(heights) <= 60


def test_equal_keys_of_several_ranks_meet(tmp_path) -> None:
    keys = [1] * 5 + [2] * 40 + [3] * 35
    left, right = numbered(tmp_path, "l", keys), numbered(tmp_path, "r", [0, 1, 2, 2, 2, 3, 4])
    heights, _ = shares(left, right)
    assert sum(heights) == 87


def test_an_empty_side(tmp_path) -> None:
    left = numbered(tmp_path, "l", list(range(80)))
    for query in (left.filter(pl.col("k") < 0), left.filter(pl.col("k") > 75)):
        assert sum(shares(query, left)[0]) == 80 + query.collect().height
        assert sum(shares(left, query)[0]) == 80 + query.collect().height

"""How many rows joins give, as footers and samples tell: near enough to know which of them outgrow a rank's memory."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.footers import FileFooters
from cudf_polars.lower.join_growth import growing_joins
from cudf_polars.lower.table_sizes import own_frames
from cudf_polars.plan.nodes import Join
from cudf_polars.plan.read import read_plan

LEFT, RIGHT = 60_000, 40_000
V, W = pl.col("v"), pl.col("w")


def growth(query: pl.LazyFrame, *, worth: float = 1e6, is_streamed: bool = False) -> float:
    """Return the rows of the largest join of a query that grows, 0 if none does."""
    plan = read_plan(query, pl.QueryOptFlags(), to_be_rebuilt=False)
    found = [
        growing_joins(plan, footers, own_frames(plan), worth, is_streamed=is_streamed, groups_at_once=1000)
        for footers in (None, FileFooters())
    ]
    assert found[0] == found[1]
    width = max(row_width(node.schema) for node in plan.nodes if isinstance(node, Join))
    return max((join.nbytes for join in found[0].values() if join.is_kept), default=0.0) / width


def frame(rows: int, name: str, key: Callable[[random.Random, int], Any], seed: int) -> pl.DataFrame:
    """Return a table with keys, and values of that name."""
    numbers = random.Random(seed)
    return pl.DataFrame({"k": [key(numbers, row) for row in range(rows)], name: range(rows)})


def as_frame(table: pl.DataFrame, _: Path) -> pl.LazyFrame:
    """Return a table in memory."""
    return table.lazy()


def as_file(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return a table in a file with several row groups."""
    table.write_parquet(path.with_suffix(".parquet"), row_group_size=7_000)
    return pl.scan_parquet(path.with_suffix(".parquet"))


def as_files(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return a table in files that pyarrow has written."""
    path.mkdir()
    for number, part in enumerate(table.iter_slices(9_000)):
        part.write_parquet(path / f"{number:02}.parquet", use_pyarrow=True)
    return pl.scan_parquet(path / "*.parquet")


def by_duckdb(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return a table in a file that DuckDB has written."""
    file = path.with_suffix(".duckdb.parquet")
    duckdb.from_arrow(table.to_arrow()).write_parquet(str(file))
    return pl.scan_parquet(file)


def as_text(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return a table in a CSV file."""
    table.write_csv(path.with_suffix(".csv"))
    return pl.scan_csv(path.with_suffix(".csv"))


def as_ipc(table: pl.DataFrame, path: Path) -> pl.LazyFrame:
    """Return a table in an IPC file."""
    table.write_ipc(path.with_suffix(".ipc"))
    return pl.scan_ipc(path.with_suffix(".ipc"))


STORES = {
    "frame": as_frame,
    "file": as_file,
    "files": as_files,
    "duckdb": by_duckdb,
    "text": as_text,
    "ipc": as_ipc,
}

GROWING: dict[str, Callable[[random.Random, int], Any]] = {
    "numbers": lambda numbers, _: numbers.randrange(300),
    "numbers far apart": lambda numbers, _: numbers.randrange(300) * 7_654_321_987,
    "sorted numbers": lambda _, row: row // 200,
    "numbers and nulls": lambda numbers, row: None if row % 3 else numbers.randrange(300),
    "days": lambda numbers, _: dt.date(2020, 1, 1) + dt.timedelta(numbers.randrange(300)),
    "points in time": lambda numbers, _: dt.datetime(2020, 1, 1) + dt.timedelta(hours=numbers.randrange(300)),
    "text": lambda numbers, _: f"a key of some letters {numbers.randrange(300)}",
    "truth values": lambda numbers, _: numbers.random() < 0.5,
    "floats": lambda numbers, _: numbers.randrange(300) / 7,
    "one value": lambda _, __: 5,
    "one frequent value": lambda _, row: "unknown" if row % 4 == 0 else f"key {row}",
    "one frequent number": lambda _, row: -1 if row % 4 == 0 else row * 7_654_321_987,
}

DISTINCT: dict[str, Callable[[random.Random, int], Any]] = {
    "numbers": lambda _, row: row,
    "numbers far apart": lambda _, row: row * 7_654_321_987,
    "shuffled numbers": lambda _, row: row * 7919 % LEFT,
    "text": lambda _, row: f"key {row}",
    "days": lambda _, row: dt.date(1900, 1, 1) + dt.timedelta(row),
    "nulls": lambda _, row: None if row % 2 else row,
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("keys", GROWING)
def test_joins_that_grow(keys: str, store: str, tmp_path: Path) -> None:
    left = STORES[store](frame(LEFT, "v", GROWING[keys], 1), tmp_path / "left")
    right = STORES[store](frame(RIGHT, "w", GROWING[keys], 2), tmp_path / "right")
    query = left.join(right, on="k")
    pairs = left.group_by("k").len().join(right.group_by("k").len(), on="k")
    rows = pairs.select((pl.col("len").cast(pl.Int64) * pl.col("len_right")).sum()).collect().item()
    assert rows > 2 * LEFT
    # Rows of other files than Parquet are estimated from their bytes.
    times = 25 if store in ("text", "ipc") else 4
    assert rows / times < growth(query) < times * rows
    assert growth(query, worth=1e12) == 0


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("keys", DISTINCT)
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_joins_with_a_key_that_is_distinct_on_one_side_do_not_grow(
    how: Any, keys: str, store: str, tmp_path: Path
) -> None:
    distinct = frame(RIGHT, "w", DISTINCT[keys], 1)
    chosen = distinct.select("k").sample(LEFT, with_replacement=True, seed=1)
    many = STORES[store](chosen.with_columns(v=pl.int_range(pl.len())), tmp_path / "many")
    one = STORES[store](distinct, tmp_path / "one")
    assert growth(many.join(one, on="k", how=how)) == 0
    assert growth(one.join(many, on="k", how=how)) == 0


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Two tables of 300 keys each."""
    folder = tmp_path_factory.mktemp("sides")
    return (
        as_file(frame(LEFT, "v", GROWING["numbers"], 1), folder / "left"),
        as_file(frame(RIGHT, "w", GROWING["numbers"], 2), folder / "right"),
    )


ROWS = LEFT * RIGHT / 300


def test_a_cross_join_grows(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    assert growth(left.select("v").join(right.select("w"), how="cross")) == LEFT * RIGHT
    assert growth(left.select("v").join(right.select("w").head(1), how="cross")) == 0


def test_keys_of_other_ranges_have_no_partners(
    sides: tuple[pl.LazyFrame, pl.LazyFrame], tmp_path: Path
) -> None:
    left, right = sides
    assert (
        growth(left.join(as_file(right.with_columns(pl.col("k") + 1000).collect(), tmp_path / "r"), on="k"))
        == 0
    )
    half = growth(left.join(as_file(right.with_columns(pl.col("k") + 150).collect(), tmp_path / "h"), on="k"))
    assert ROWS / 3 < half < 0.7 * ROWS


def test_two_keys_have_more_values_than_one(tmp_path: Path) -> None:
    def table(rows: int, name: str, values: int) -> pl.LazyFrame:
        made = frame(rows, name, GROWING["numbers"], rows).with_columns(
            j=pl.int_range(pl.len()).hash(seed=rows) % values
        )
        return as_file(made, tmp_path / f"{name}{values}")

    assert ROWS / 40 < growth(table(LEFT, "v", 10).join(table(RIGHT, "w", 10), on=["k", "j"])) < ROWS / 3
    assert growth(table(LEFT, "v", 1000).join(table(RIGHT, "w", 1000), on=["k", "j"])) == 0


@pytest.mark.parametrize("in_files", [True, False])
def test_a_column_that_is_a_key_twice(sides: tuple[pl.LazyFrame, pl.LazyFrame], in_files: bool) -> None:
    left, right = sides if in_files else [side.collect().lazy() for side in sides]
    right = right.with_columns(j="k", x="w")
    if not in_files:
        right = right.collect().lazy()
    joined = growth(left.join(right, left_on=["k", "k"], right_on=["k", "j"]))
    assert ROWS / 4 < joined < 4 * ROWS
    assert growth(left.join(right, left_on=["v", "v"], right_on=["w", "x"])) == 0


def test_steps_before_a_join(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    assert growth(left.join(right.group_by("k").agg(W.sum()), on="k")) == 0
    assert growth(left.join(right.unique("k"), on="k")) == 0
    assert growth(left.rename({"k": "l"}).join(right, left_on="l", right_on="k")) > ROWS / 2
    assert growth(left.select("v", k="k").sort("v").join(right, on="k").with_columns(s=V + W)) > ROWS / 2
    # Twice as many rows for each key, and each of the three tables has it.
    twice = pl.concat([left.select("k", "v")] * 2)
    assert growth(left.join(right, on="k").join(right.rename({"w": "x"}).head(3000), on="k")) > 5 * ROWS
    assert growth(twice.join(right, on="k")) == 0  # of what several tables are made is not known


def test_rows_that_are_not_kept_do_not_count(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    joined = left.join(right, on="k")
    kept = {
        "rows": joined,
        "rows that are filtered": joined.filter(V > W),
        "medians": joined.group_by("k").agg(V.median()),
        "many groups": joined.group_by("v").agg(W.sum()),
        "distinct values": joined.group_by("k").agg(W.n_unique()),
        "a sort": joined.sort("w"),
        "windows": joined.with_columns(V.sum().over("k")),
        "the last rows": joined.tail(5),
        "a median": joined.select(V.median()),
    }
    passing = {
        "few groups": joined.group_by("k").agg(V.sum(), W.mean(), pl.len()),
        "a sum": joined.select(V.sum(), pl.len()),
        "top rows": joined.sort("w", "v").head(10),
        "the first rows": joined.head(10),
        "groups of filtered rows": joined.filter(V > W)
        .with_columns(x=V + W)
        .group_by("k")
        .agg(pl.col("x").max()),
        "a join": joined.join(right.select("k", x="w").unique("k"), on="k")
        .group_by("k")
        .agg(pl.col("x").max()),
    }
    assert {name for name, query in (kept | passing).items() if growth(query)} == set(kept)
    assert growth(joined, is_streamed=True) == 0
    assert growth(joined.sort("w"), is_streamed=True) > 0


def test_computed_keys_are_computed_for_samples(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    joined = left.join(right, left_on=pl.col("k") // 3, right_on=pl.col("k") // 3)
    assert ROWS < growth(joined) < 9 * ROWS
    named = left.with_columns(d=pl.col("k").cast(pl.String) + "!")
    assert growth(named.join(right.with_columns(d=pl.format("{}!", "k")), on="d")) > ROWS / 3
    assert growth(named.join(right.with_columns(d=pl.format("{}{}", "k", "w")), on="d")) == 0


def test_samples_tell_what_filters_leave(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    joined = left.filter(V % 2 == 0).join(right.filter(W % 3 == 0), on="k")
    assert ROWS / 12 < growth(joined, worth=1e5) < ROWS / 3
    assert growth(left.filter(V % 3000 == 0).join(right.filter(W % 3000 == 0), on="k")) == 0
    assert growth(left.filter(V < 0).join(right, on="k")) < ROWS / 2  # no row is left of the samples


def test_what_is_unknown_does_not_grow(sides: tuple[pl.LazyFrame, pl.LazyFrame]) -> None:
    left, right = sides
    both = left.join(right, left_on="v", right_on="w").select("v", s=pl.col("k") + pl.col("k_right"))
    assert growth(both.join(both, on="s")) == 0

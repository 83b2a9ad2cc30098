"""Windows of time over whole tables and over groups: distributed, and Polars' own answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run
from execute.random_tables import scan_files

from cudf_polars.execute.options import ExecutionOptions

V, K = pl.col("v"), pl.col("k")
START = datetime(2024, 1, 30, 22, 17)
INDEX: Mapping[str, tuple[pl.DataType, Callable[[int], object]]] = {
    "int": (pl.Int64(), lambda n: n),
    "small": (pl.Int32(), lambda n: n - 7),
    "unsigned": (pl.UInt64(), lambda n: n),
    "day": (pl.Date(), lambda n: date(2024, 1, 30) + timedelta(days=n)),
    "us": (pl.Datetime("us"), lambda n: START + timedelta(hours=7 * n)),
    "ms": (pl.Datetime("ms"), lambda n: START + timedelta(hours=31 * n)),
    # Its clocks are set on in the night before the second of these days, and back in October.
    "zone": (pl.Datetime("us", "Europe/Berlin"), lambda n: datetime(2024, 3, 30) + timedelta(hours=9 * n)),
}
AGGS = (V, V.sum().alias("s"), pl.len().alias("n"), V.last().alias("l"))


def _table(kind: str, rows: int) -> pl.DataFrame:
    """Return a table sorted by ``t``, with equal values and gaps."""
    rng = random.Random(f"{kind} {rows}")
    dtype, value = INDEX[kind]
    steps = itertools.accumulate(rng.choice([0, 0, 1, 1, 2, 5, 17]) for _ in range(rows))
    times = pl.Series(
        [value(step) for step in steps], dtype=dtype.base_type() if dtype.is_temporal() else dtype
    )
    if isinstance(dtype, pl.Datetime):
        times = times.cast(pl.Datetime(dtype.time_unit))
        if dtype.time_zone is not None:
            times = times.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
    keys = [rng.choice([None, 3, 1, 2]) for _ in range(rows)]
    return pl.DataFrame({"t": times, "v": range(rows), "k": keys}, schema_overrides={"k": pl.Int64})


@pytest.fixture(params=[(kind, rows) for kind in INDEX for rows in (0, 1, 40)], ids=str)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> pl.LazyFrame:
    kind, rows = request.param
    frame = _table(kind, rows)
    return scan_files(frame, tmp_path, [0, rows // 5, rows // 5, rows // 2, rows // 2 + (rows > 1), rows])


def _signed(table: pl.LazyFrame) -> pl.LazyFrame:
    """Return a table with an index that Polars takes for ``group_by_dynamic``, too."""
    if table.collect_schema()["t"] != pl.UInt64:
        return table
    return table.with_columns(pl.col("t").cast(pl.Int64))


def _durations(table: pl.LazyFrame) -> list[str]:
    dtype = table.collect_schema()["t"]
    if dtype.is_integer():
        return ["1i", "3i", "10i"]
    if dtype == pl.Date:
        return ["1d", "3d", "2w", "1mo"]
    return ["2h", "1d", "36h", "1mo"]


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 5])
def test_rolling(table: pl.LazyFrame, nranks: int, options: ExecutionOptions) -> None:
    rng = random.Random(nranks)
    for period in _durations(table):
        closed = rng.choice(["left", "right", "both", "none"])
        offset = rng.choice([None, *_durations(table), f"-{period}", f"-{_durations(table)[0]}"])
        for outcome in assert_like_polars(
            table.rolling("t", period=period, offset=offset, closed=closed).agg(AGGS), nranks, options
        ):
            assert not outcome.fallbacks


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 5])
def test_dynamic(table: pl.LazyFrame, nranks: int, options: ExecutionOptions) -> None:
    rng = random.Random(nranks)
    table = _signed(table)
    for every in _durations(table):
        query = table.group_by_dynamic(
            "t",
            every=every,
            period=rng.choice([None, *_durations(table)]),
            offset=rng.choice([None, *_durations(table)]),
            closed=rng.choice(["left", "right", "both", "none"]),
            label=rng.choice(["left", "right", "datapoint"]),
            include_boundaries=rng.random() < 0.5,
            start_by=rng.choice(["window", "datapoint", "monday" if every in ("1d", "1w") else "window"]),
        ).agg(AGGS)
        for outcome in assert_like_polars(query, nranks, options):
            assert not outcome.fallbacks


@pytest.mark.parametrize("nranks", [2, 3])
def test_of_groups(table: pl.LazyFrame, nranks: int) -> None:
    table = _signed(table)
    period = _durations(table)[1]
    queries = [
        table.group_by_dynamic("t", every=period, group_by="k", include_boundaries=True).agg(AGGS),
        table.group_by_dynamic("t", every=period, group_by=K % 2, label="datapoint").agg(AGGS),
        table.rolling("t", period=period, group_by="k", closed="left").agg(AGGS),
        table.rolling("t", period=period, group_by=[K, K.is_null().alias("z")]).agg(AGGS).head(5),
    ]
    for query in queries:
        for options in (TINY, PARTITIONED):
            for outcome in assert_like_polars(query, nranks, options):
                assert not outcome.fallbacks


@pytest.mark.parametrize("options", [TINY, ORDINARY], ids=["tiny", "ordinary"])
def test_groups_of_text_are_in_the_order_of_polars(tmp_path: Path, options: ExecutionOptions) -> None:
    """There the shorter text comes first, and null last."""
    frame = _table("int", 40).with_columns(
        x=pl.Series([None, "b", "aa", "", "B", "é", "abc", "a" * 253] * 5, dtype=pl.String)
    )
    lf = scan_files(frame.with_columns(y=pl.col("x").cast(pl.Binary)), tmp_path, [0, 15, 40])
    for keys in (["x"], ["y"], ["k", "x"], ["x", "y", "k"]):
        for query in (
            lf.group_by_dynamic("t", every="3i", group_by=keys).agg(AGGS),
            lf.rolling("t", period="3i", group_by=keys).agg(AGGS).slice(3, 20),
        ):
            assert not assert_like_polars(query, 3, options)[0].fallbacks


def test_constant_keys_are_gathered(tmp_path: Path) -> None:
    lf = scan_files(_table("int", 40), tmp_path, [0, 20, 40])
    query = lf.group_by_dynamic("t", every="3i", group_by=pl.lit(1)).agg(V.sum())
    assert assert_like_polars(query, 2)[0].fallbacks


@pytest.mark.parametrize("nranks", [2, 3])
def test_parts_that_are_not_in_order_are_refused(nranks: int, tmp_path: Path) -> None:
    # Each rank's own rows are sorted.
    frame = pl.DataFrame({"t": [5, 6, 7, 1, 2, 3], "v": range(6)})
    lf = scan_files(frame, tmp_path, [0, 3, 6])
    for query in (
        lf.rolling("t", period="2i").agg(V.sum()),
        lf.with_columns(z=V.sum().rolling("t", period="2i")),
    ):
        with pytest.raises(pl.exceptions.InvalidOperationError, match="'rolling' is not sorted"):
            run(query, nranks)


def test_small_tables_are_gathered_without_a_word_and_wide_windows_with_one(tmp_path: Path) -> None:
    lf = scan_files(_table("int", 40), tmp_path, [0, 20, 40])
    query = lf.rolling("t", period="100i").agg(V.sum())
    assert not assert_like_polars(query, 2, ORDINARY)[0].fallbacks
    of_large_tables = replace(ORDINARY, small_limit=1, head_limit=0)
    (step,) = assert_like_polars(query, 2, of_large_tables)[0].fallbacks
    assert "time windows" in step
    narrow = lf.rolling("t", period="2i").agg(V.sum())
    assert not assert_like_polars(narrow, 2, of_large_tables)[0].fallbacks

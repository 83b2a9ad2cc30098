"""Windows of aggregates over few groups: the groups are joined with the rows, which do not move."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars

from cudf_polars.execute.run import QueryOutcome

pytestmark = pytest.mark.filterwarnings("ignore")

NAN = float("nan")
COPIED = replace(ORDINARY, sample_least=0, small_limit=0, read_everywhere_limit=0)
"""As users run it, but that small tables are sampled and shuffled."""
COPIED_TO_PARTITIONS = replace(COPIED, partitions=3)
KEYS: dict[str, tuple[pl.DataType, list[object]]] = {
    "integers": (pl.Int64(), [None, -1, 0, 7]),
    "floats": (pl.Float64(), [None, NAN, -NAN, 0.0, -0.0, 1.5]),
    "texts": (pl.String(), [None, "", "a", "é"]),
    "dates": (pl.Date(), [None, dt.date(2024, 2, 29), dt.date(1900, 1, 1)]),
    "decimals": (pl.Decimal(10, 2), [None, 1, 2]),
    "truths": (pl.Boolean(), [None, True, False]),
    "choices": (pl.Enum(["b", "a"]), [None, "a", "b"]),
    "categories": (pl.Categorical(), [None, "a", "b"]),
    "nothing": (pl.Int8(), [None]),
}
x, y, k, c = pl.col("x"), pl.col("y"), pl.col("k"), pl.col("c")
WINDOWS: dict[str, pl.Expr] = {
    "sum": x.sum().over("k"),
    "mean": x.mean().over("k"),
    "len": pl.len().over("k"),
    "count": x.count().over("k"),
    "deviation": (x - x.mean()).over("k"),
    "share": x / x.sum().over("k"),
    "scaled": ((x - x.min()) / (x.max() - x.min())).over("k"),
    "std": x.std().over("k"),
    "first": y.first().over("k"),
    "last": y.last().over("k"),
    "filtered": x.filter(y > 20).sum().over("k"),
    "distinct": y.n_unique().over("k"),
    "any": (y > 90).any().over("k"),
    "nulls": x.null_count().over("k"),
    "two keys": x.sum().over("k", "c"),
    "computed key": x.max().over(c % 2),
    "computed keys": x.max().over(c % 2, k.is_null()),
    "two windows": x.sum().over("k") - x.sum().over("c"),
    "with a rank": x.sum().over("k") + y.rank("ordinal").over("k"),
    "with rows in order": x.mean().over("k") + y.cum_sum(),
    "with a total": x.mean().over("k") + x.sum(),
}


def table(folder: Path, kind: str, rows: int = 3000) -> pl.LazyFrame:
    """Return a table of a file with small row groups: k has few values, n is the number of a row."""
    dtype, values = KEYS[kind]
    rng = random.Random(kind)
    frame = pl.DataFrame(
        {
            "k": pl.Series([rng.choice(values) for _ in range(rows)], dtype=dtype, strict=False),
            "x": [rng.choice([None, rng.uniform(-5, 5)]) for _ in range(rows)],
            "y": [rng.randrange(100) for _ in range(rows)],
            "c": [rng.randrange(5) for _ in range(rows)],
            "n": range(rows),
        }
    )
    frame.write_parquet(folder / f"{kind}.parquet", row_group_size=400)
    return pl.scan_parquet(folder / f"{kind}.parquet")


def copied(outcomes: list[QueryOutcome]) -> bool:
    """Whether groups were copied to all ranks, and no row was sent by the hash of its window."""
    (text,) = {outcome.explain() for outcome in outcomes}
    return "BROADCAST" in text and not re.search(r"SHUFFLE by hash\((k|c|__rr_window_key0)\b", text)


@pytest.mark.parametrize("options", [COPIED, COPIED_TO_PARTITIONS, TINY, PARTITIONED])
@pytest.mark.parametrize("kind", KEYS)
def test_groups_are_those_of_polars(kind: str, options: object, tmp_path: Path) -> None:
    assert options in (COPIED, COPIED_TO_PARTITIONS, TINY, PARTITIONED)
    rows = table(tmp_path, kind)
    query = rows.with_columns(s=x.sum().over("k"), d=(x - x.mean()).over("k"), l=pl.len().over("k"))
    for nranks in (2, 3):
        outcomes = assert_like_polars(query, nranks, options)  # type: ignore[arg-type]
        if options in (COPIED, COPIED_TO_PARTITIONS):
            assert copied(outcomes), outcomes[0].explain()


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_all_kinds(name: str, tmp_path: Path) -> None:
    rows, window = table(tmp_path, "integers"), WINDOWS[name]
    forms: list[Callable[[pl.LazyFrame], pl.LazyFrame]] = [
        lambda lf: lf.with_columns(w=window),
        lambda lf: lf.select("n", w=window),
        lambda lf: lf.with_columns(x=window, k=pl.lit(1)),
        lambda lf: lf.filter(window.cast(pl.Float64) > 1),
        lambda lf: lf.with_columns(w=window).group_by("c").agg(pl.col("w").sum()).sort("c"),
    ]
    for form in forms:
        for nranks, options in ((2, COPIED), (3, PARTITIONED)):
            assert_like_polars(form(rows), nranks, options)


def test_windows_after_steps_over_files(tmp_path: Path) -> None:
    rows = table(tmp_path, "texts").filter(y > 10).with_columns(z=y * 2)
    query = rows.select("n", "z", share=pl.col("z") / pl.col("z").sum().over("k"))
    outcomes = assert_like_polars(query, 2, COPIED)
    assert copied(outcomes)


def test_many_groups_move(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [n // 2 for n in range(4000)], "x": range(4000)}).sample(
        fraction=1.0, shuffle=True, seed=1
    )
    frame.write_parquet(tmp_path / "many.parquet", row_group_size=500)
    query = pl.scan_parquet(tmp_path / "many.parquet").with_columns(s=x.sum().over("k"))
    outcomes = assert_like_polars(query, 2, COPIED)
    assert not copied(outcomes)


def test_windows_by_the_key_of_sorted_files_stay(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [n // 40 for n in range(8000)], "x": range(8000)})
    frame.write_parquet(tmp_path / "sorted.parquet", row_group_size=400)
    query = pl.scan_parquet(tmp_path / "sorted.parquet").with_columns(s=x.sum().over("k"))
    for options in (COPIED, COPIED_TO_PARTITIONS):
        text = assert_like_polars(query, 2, options)[0].explain()
        assert "by ranges of k" in text
        assert "SHUFFLE" not in text
        assert "BROADCAST" not in text

"""Joins with a side that every rank has: where memory is short, that side is held, and the other's rows pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.compare import ORDINARY, assert_like_polars

from cudf_polars.execute.options import ExecutionOptions

pytestmark = pytest.mark.filterwarnings("ignore")

COPYING = replace(ORDINARY, broadcast_limit=8 << 10, small_limit=0, read_everywhere_limit=0, filter_keys=0)
COPIED = {"inner": "right", "left": "right", "right": "left", "semi": "right", "anti": "right"}


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often Polars was told to hold which side."""
    told: Counter[str] = Counter()
    join = pl.LazyFrame.join

    def noting(self: pl.LazyFrame, *args: Any, **kwargs: Any) -> pl.LazyFrame:
        told[kwargs.get("build_side", "auto")] += 1
        return join(self, *args, **kwargs)

    monkeypatch.setattr(pl.LazyFrame, "join", noting)
    return told


def tables(folder: Path) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return a table of many wide rows and one of few narrow ones, of which some have no partner."""
    many = pl.DataFrame({"k": [k * 7919 % 5000 for k in range(20_000)]}).with_row_index("a")
    many = many.with_columns(t=pl.format("text {}", "a"))
    few = pl.DataFrame({"k": [*range(0, 4500, 5), None, 9999]})
    many.write_parquet(folder / "many.parquet", row_group_size=3000)
    few.write_parquet(folder / "few.parquet")
    return pl.scan_parquet(folder / "many.parquet"), pl.scan_parquet(folder / "few.parquet")


@pytest.mark.parametrize("how", COPIED)
@pytest.mark.parametrize("nranks", [1, 2])
def test_the_copied_side_is_held(how: str, nranks: int, tmp_path: Path, sides: Counter[str]) -> None:
    many, few = tables(tmp_path)
    left, right = (few, many) if how == "right" else (many, few)
    query = left.join(right, on="k", how=how)
    sides.clear()
    outcomes = assert_like_polars(query, nranks, replace(COPYING, partitions=3), ordered=False)
    assert "BROADCAST" in outcomes[0].explain()
    assert sides[f"force_{COPIED[how]}"] > 0, sides
    assert sides[f"force_{'left' if COPIED[how] == 'right' else 'right'}"] == 0, sides


def test_a_side_of_few_rows_need_not_be_held(tmp_path: Path, sides: Counter[str]) -> None:
    """Polars has chosen before it has many rows of the other side, whose scan it then filters by the keys."""
    many, few = tables(tmp_path)
    query = many.join(few.filter(pl.col("k") % 50 == 0), on="k")
    sides.clear()
    outcomes = assert_like_polars(query, 2, replace(COPYING, partitions=3), ordered=False)
    assert "BROADCAST" in outcomes[0].explain()
    assert set(sides) == {"auto"}


@pytest.mark.parametrize("order", ["left", "right", "left_right", "right_left"])
def test_joins_that_keep_an_order(order: str, tmp_path: Path) -> None:
    many, few = tables(tmp_path)
    for left, right in ((many, few), (few, many)):
        query = left.join(right, on="k", maintain_order=order)  # type: ignore[arg-type]
        assert_like_polars(
            query, 2, replace(COPYING, partitions=3), ordered=order in ("left_right", "right_left")
        )


@pytest.mark.parametrize("options", [COPYING, replace(COPYING, partitions=3, broadcast_limit=1 << 20)])
def test_where_rows_fit_polars_chooses(
    options: ExecutionOptions, tmp_path: Path, sides: Counter[str]
) -> None:
    many, few = tables(tmp_path)
    outcomes = assert_like_polars(many.join(few, on="k"), 2, options, ordered=False)
    assert "BROADCAST" in outcomes[0].explain()
    assert set(sides) == {"auto"}

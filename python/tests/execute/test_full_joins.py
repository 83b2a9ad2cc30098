"""Where the rows of a full join are, which of one side have no partner: what is computed of them next depends on it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.compare import assert_like_polars
from execute.random_tables import scan_files


@pytest.fixture
def tables(tmp_path: Path) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    numbers = range(12)
    left = pl.DataFrame({"u": [i % 4 for i in numbers], "v": numbers})
    right = pl.DataFrame({"u": [i % 9 for i in numbers], "s": [i * 7 % 3 for i in numbers], "w": numbers})
    folders = [tmp_path / name for name in ("left", "right")]
    for folder in folders:
        folder.mkdir()
    return tuple(scan_files(f, d, [0, 4, 8, 12]) for f, d in zip((left, right), folders, strict=True))


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize(
    ("left_on", "right_on"), [(["u", "u"], ["u", "s"]), (["u", "v"], ["u", "s"]), (["u"], ["u"])], ids=str
)
def test_groups_by_a_key_of_a_full_join(
    tables: tuple[pl.LazyFrame, pl.LazyFrame], left_on: list[str], right_on: list[str], coalesce: bool
) -> None:
    left, right = tables
    joined = left.join(right, left_on=left_on, right_on=right_on, how="full", coalesce=coalesce)
    for key in ("u", "v"):
        assert_like_polars(joined.group_by(key).agg(pl.len(), pl.col("w").sum()).sort(key), 3)


def test_a_copy_of_a_key_is_null_in_rows_of_the_other_side(
    tables: tuple[pl.LazyFrame, pl.LazyFrame],
) -> None:
    left, right = tables
    groups = left.group_by("u").agg(pl.col("v").median()).with_columns(copy=pl.col("u"))
    joined = groups.join(right, on="u", how="full", coalesce=True)
    assert_like_polars(joined.group_by("copy").agg(pl.len()).sort("copy"), 3)

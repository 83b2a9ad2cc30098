"""An as-of join over rows that are not sorted is refused on every rank, also where each rank's own part is sorted."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run

from cudf_polars.execute.options import ExecutionOptions

SORTED = {
    "plain": [1, 2, 2, 4, 7, 7],
    "nulls_first": [None, None, 1, 2, 3, 3],
    "nulls_last": [1, 2, 3, 3, None, None],
    "nulls_between": [1, 2, None, None, 3, 4],
    "nulls": [None] * 6,
    "empty": [],
}
UNSORTED = {
    "at_an_edge": [1, 2, 3, 1, 2, 3],
    "descending": [6, 5, 4, 3, 2, 1],
    "within_a_part": [1, 3, 2, 4, 5, 6],
    "around_nulls": [None, 4, 5, None, 1, 2],
}
RIGHT = pl.LazyFrame({"k": [1, 3, 5], "w": [10, 30, 50]}, schema={"k": pl.Int64, "w": pl.Int64})


def _table(folder: Path, keys: list[int | None]) -> pl.LazyFrame:
    path = folder / "left.parquet"
    frame = pl.DataFrame({"k": keys, "v": range(len(keys))}, schema={"k": pl.Int64, "v": pl.Int64})
    frame.write_parquet(path, row_group_size=1)
    RIGHT.sink_parquet(folder / "right.parquet")
    return pl.scan_parquet(path)


def _join(left: pl.LazyFrame, folder: Path, **options: object) -> pl.LazyFrame:
    return left.join_asof(pl.scan_parquet(folder / "right.parquet"), on="k", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [TINY, PARTITIONED, ORDINARY], ids=["tiny", "partitioned", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", SORTED)
def test_sorted_rows(tmp_path: Path, name: str, nranks: int, options: ExecutionOptions) -> None:
    left = _table(tmp_path, SORTED[name])
    assert_like_polars(_join(left, tmp_path), nranks, options)
    assert_like_polars(_join(left.with_row_index(), tmp_path), nranks, options)


@pytest.mark.parametrize("options", [TINY, PARTITIONED, ORDINARY], ids=["tiny", "partitioned", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", UNSORTED)
def test_unsorted_rows(tmp_path: Path, name: str, nranks: int, options: ExecutionOptions) -> None:
    left = _table(tmp_path, UNSORTED[name])
    for query in (
        _join(left, tmp_path),
        _join(left.with_row_index().unique("v", maintain_order=True), tmp_path),
    ):
        with pytest.raises(Exception, match="asof_join' is not sorted"):
            query.collect(engine="streaming")
        with pytest.raises(Exception, match="asof_join' is not sorted"):
            run(query, nranks, options)


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", UNSORTED)
def test_unsorted_rows_on_the_right(tmp_path: Path, name: str, nranks: int) -> None:
    """Polars' streaming engine does not see it where each of its batches is sorted, and gives wrong rows then."""
    right = _table(tmp_path, UNSORTED[name])
    query = pl.scan_parquet(tmp_path / "right.parquet").join_asof(right, on="k")
    with pytest.raises(Exception, match="asof_join' is not sorted"):
        run(query, nranks, PARTITIONED)


@pytest.mark.parametrize("nranks", [2, 3])
def test_no_check_where_none_is_wanted(tmp_path: Path, nranks: int) -> None:
    left = _table(tmp_path, UNSORTED["at_an_edge"])
    assert_like_polars(_join(left, tmp_path, check_sortedness=False), nranks)
    outcomes = assert_like_polars(_join(left.sort("k", maintain_order=True), tmp_path), nranks)
    assert "CHECK ORDER" not in outcomes[0].explain()


@pytest.mark.parametrize("nranks", [2, 3])
def test_the_check_is_part_of_the_plan(tmp_path: Path, nranks: int) -> None:
    outcomes = assert_like_polars(_join(_table(tmp_path, SORTED["plain"]), tmp_path), nranks)
    assert "CHECK ORDER over the ranks by k" in outcomes[0].explain()

"""Numbered rows of files and slices of them: the rows of Polars, and no error of rows behind the slice."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.lower import scans

HEIGHTS = [0, 10, 3, 10, 1]


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank alone reads few rows: here several do."""
    monkeypatch.setattr(scans, "SMALL_FILES", 0.0)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for number, height in enumerate(HEIGHTS):
        pl.DataFrame({"a": range(number * 10, number * 10 + height)}).write_csv(folder / f"{number}.csv")
    return folder


@pytest.mark.parametrize("seed", range(40))
def test_slices_of_numbered_rows(texts: Path, seed: int) -> None:
    chance = random.Random(seed)
    query = pl.scan_csv(texts / chance.choice(["*.csv", "1.csv"]), schema={"a": pl.Int64})
    if chance.random() < 0.3:
        query = query.filter(pl.col("a") % 3 > 0)
    for name in ["i", "j"][: chance.randint(1, 2)]:
        offset = chance.choice([0, 0, 1, 3, 9, 10, 11, 13, 20, 22, -1, -3, -20])
        length = chance.choice([None, 0, 1, 2, 5, 10, 12, 30, 2**32 - 1])
        query = query.with_row_index(name, offset=chance.choice([0, 7])).slice(offset, length)
        if chance.random() < 0.3:
            query = query.filter(pl.col(name) % 2 == 0)
    for options in (TINY, PARTITIONED, ExecutionOptions()):
        actual, _ = run(query, chance.choice([2, 3, 6]), options)
        compare_answers(actual, query.collect(), ordered=True)


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3, 5])
@pytest.mark.parametrize("rows", [3, 5, 10])
def test_rows_behind_a_slice_may_be_wrong(
    tmp_path: Path, rows: int, nranks: int, options: ExecutionOptions
) -> None:
    for number, last in enumerate(["11", "1", "no number", "1", "1"]):
        texts = [str(n) for n in range(4)] + [last]
        pl.DataFrame({"a": texts}).write_csv(tmp_path / f"{number}.csv")
    scan = pl.scan_csv(tmp_path / "*.csv", schema={"a": pl.Int64})
    numbered = scan.with_row_index()
    for query in (
        numbered.head(rows),
        numbered.slice(2, rows - 2),
        numbered.head(rows).group_by("a").agg(pl.col("index").sum()),
        numbered.head(rows).join(numbered.head(rows), on="a"),
    ):
        compare_answers(run(query, nranks, options)[0], query.collect(), ordered=False)
    for needed in (numbered, numbered.head(15), numbered.filter(pl.col("index") > 20)):
        with pytest.raises(pl.exceptions.ComputeError):
            run(needed, nranks, options)


def test_no_more_is_numbered_than_a_slice_may_need(texts: Path) -> None:
    query = pl.scan_csv(texts / "*.csv", schema={"a": pl.Int64}).with_row_index().head(2)
    _, outcomes = run(query, 2, ExecutionOptions(head_limit=0, small_limit=0, read_everywhere_limit=0))
    lines = outcomes[0].explain().splitlines()
    number = next(n for n, line in enumerate(lines) if "GLOBAL ROW INDEX" in line)
    assert "HEAD" in lines[number + 1]

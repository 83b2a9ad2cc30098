"""Expressions that look row-wise and are not: on a part of the rows they would give something else."""

from __future__ import annotations

import datetime
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, TINY, assert_like_polars

from cudf_polars.execute.options import ExecutionOptions

FRAME = pl.DataFrame(
    {
        "i": [1, 2, 3, 4, 5, 6, 7, 8],
        "s": ["x", "y", "z", "y", "x", "y", "z", "w"],
        "day": ["2020-01-02", "2020-02-03", *["03/04/2021", "04/05/2021"] * 3],
        "t": pl.Series([-1, 0, 999, 1000, 1999, 2000, 2999, 10**9]).cast(pl.Datetime("ns")),
        "tm": pl.Series([0, 1, 999, 1000, 1999, 2000, 2999, 10**9]).cast(pl.Time),
    }
)
I, S, T = pl.col("i"), pl.col("s"), pl.col("t")  # noqa: E741
NEEDLES = pl.lit(pl.Series([["x"], ["y"], ["y"], ["z"], ["x"], [], ["z", "w"], ["q"]]))
EPOCH = pl.lit(datetime.datetime(1970, 1, 1), dtype=pl.Datetime("us"))

QUERIES = {
    # a series in a function has a value for each row of the table
    "find_many": lambda lf: lf.select(S.str.find_many(NEEDLES)),
    "extract_many": lambda lf: lf.with_columns(found=S.str.extract_many(NEEDLES)),
    "is_in_rows": lambda lf: lf.select(I.is_in(pl.Series([[1], [9], [3], [4], [], [6], [7, 8], [8]]))),
    "replace_default": lambda lf: lf.select(I.replace_strict([1, 2], [10, 20], default=pl.Series(range(8)))),
    # what to look for is made of the table, and is one value for all rows
    "replace_by_columns": lambda lf: lf.select(S.replace_strict(pl.col("day").unique(), "q", default=S)),
    "replace_over": lambda lf: lf.with_columns(x=I.replace_strict(I, I + 1, default=-1).over("s")),
    # the first text says the format of all
    "to_date": lambda lf: lf.select(pl.col("day").str.to_date(strict=False)),
    "to_datetime": lambda lf: lf.with_columns(at=pl.col("day").str.to_datetime(strict=False, time_unit="ms")),
    "filter_to_date": lambda lf: lf.filter(pl.col("day").str.to_date(strict=False).is_null()).select("i"),
    # Polars' optimiser writes literals of nanoseconds
    "literal_le": lambda lf: lf.filter(T <= EPOCH).select("i"),
    "literal_gt": lambda lf: lf.filter(T > EPOCH).select("i"),
    "literal_time": lambda lf: lf.filter(pl.col("tm") >= pl.lit(1).cast(pl.Time)).select("i"),
    "literal_column": lambda lf: lf.select("i", x=pl.lit(1).cast(pl.Datetime("ns"))),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    path: Path = tmp_path_factory.mktemp("table") / "table.parquet"
    FRAME.write_parquet(path, row_group_size=1)
    return pl.scan_parquet(path)


@pytest.mark.parametrize("options", [TINY, ORDINARY], ids=["tiny", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_answer(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    assert_like_polars(QUERIES[name](table), nranks, options)


@pytest.mark.parametrize(
    "expr",
    [
        S.is_in(["x", "y"]),
        S.is_in(pl.Series([["x", "y"]])),
        S.replace({"x": "y"}),
        S.str.find_many(["x", "y"]),
        S.str.find_many(pl.lit(pl.Series([["x", "y"]]))),
        pl.col("day").str.to_date("%Y-%m-%d", strict=False),
        T <= EPOCH,
    ],
    ids=str,
)
def test_row_wise_expressions_stay_so(table: pl.LazyFrame, expr: pl.Expr) -> None:
    outcomes = assert_like_polars(table.select(expr), 2)
    assert outcomes[0].fallbacks == []

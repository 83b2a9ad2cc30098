"""Lists of values that ``when`` chooses for the rows of a group are in the order of the rows.

Polars takes them for lists without an order if the branches are constants, and gives another order now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions

ROWS = 200_000
CHOICE = pl.when(pl.col("i") > 1).then(1).otherwise(2)
LISTS: Mapping[str, pl.Expr] = {
    "two": CHOICE,
    "three": pl.when(pl.col("i") > 1).then(1).when(pl.col("i") > 0).then(2).otherwise(3),
    "or null": pl.when(pl.col("i") > 1).then(pl.lit("a")),
    "computed": (CHOICE * 3).cast(pl.String),
    "filtered": CHOICE.filter(pl.col("i") < 2),
    "distinct": CHOICE.unique(maintain_order=True),
}


@pytest.mark.parametrize(
    "options", [TINY, PARTITIONED, ExecutionOptions()], ids=["tiny", "three", "ordinary"]
)
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("values", list(LISTS))
def test_lists(tmp_path: Path, values: str, nranks: int, options: ExecutionOptions) -> None:
    frame = pl.DataFrame({"b": [n * 31 % 7 for n in range(ROWS)], "i": [n * n % 11 % 3 for n in range(ROWS)]})
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=10_000)

    def query(rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.group_by("b").agg(z=LISTS[values], n=pl.len())

    expected = query(frame.lazy()).collect(engine="in-memory", optimizations=pl.QueryOptFlags.none())
    actual, _ = run(query(pl.scan_parquet(tmp_path / "rows.parquet")), nranks, options)
    compare_answers(actual, expected, ordered=False)

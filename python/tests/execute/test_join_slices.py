"""A join that keeps an order gives the first rows of that order, whoever reads them.

Polars drops the order if no reader observes it but a slice that it pushes into the join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions

ROWS = 900
SLICES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "head": lambda lf: lf.head(50),
    "tail": lambda lf: lf.tail(50),
    "filter": lambda lf: lf.filter(pl.col("v") > 5).head(50),
}
READERS: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "sum": lambda lf: lf.select(pl.col("v").sum(), pl.col("w").sum()),
    "sorted": lambda lf: lf.sort("w").group_by("v").len(),
}


@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("reader", list(READERS))
@pytest.mark.parametrize("rows", list(SLICES))
def test_first_rows(
    tmp_path: Path, rows: str, reader: str, how: str, nranks: int, options: ExecutionOptions
) -> None:
    left = pl.DataFrame({"k": [(n * 467) % 97 for n in range(ROWS)], "v": range(ROWS)})
    right = pl.DataFrame({"k": [(n * 31) % 89 for n in range(300)], "w": range(300)})
    for name, frame in (("left", left), ("right", right)):
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=37)

    def query(order: str) -> pl.LazyFrame:
        joined = pl.scan_parquet(tmp_path / "left.parquet").join(
            pl.scan_parquet(tmp_path / "right.parquet"),
            on="k",
            how=how,
            maintain_order=order,
            coalesce=True,
        )
        return READERS[reader](SLICES[rows](joined))

    for order in ("left_right", "right_left"):
        expected = query(order).collect(optimizations=pl.QueryOptFlags.none())
        actual, _ = run(query(order), nranks, options)
        compare_answers(actual, expected, ordered=False)

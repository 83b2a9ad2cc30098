"""A ``select`` of ``sort()`` or ``int_range()`` defines an order, which partitions and a second reader keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars

from cudf_polars.execute.options import ExecutionOptions

ROWS = 937
VALUES: Mapping[str, pl.Expr] = {
    "counted": pl.int_range(pl.len()),
    "sorted": pl.col("x").sort(),
    "descending": pl.col("x").sort(descending=True),
    "largest": pl.col("x").top_k(600).sort(),
}


def _with_own_groups(lf: pl.LazyFrame) -> pl.LazyFrame:
    """Read the rows twice: once in their order, once in any."""
    groups = lf.group_by("y").agg(pl.col("z").quantile(0.5, "linear").alias("middle"))
    return lf.join(groups, on="y", how="inner", maintain_order="left")


USES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "itself": lambda lf: lf,
    "head": lambda lf: lf.head(500),
    "own groups": _with_own_groups,
    "numbered": lambda lf: lf.with_row_index("row").filter(pl.col("row") % 3 == 0),
    "beside itself": lambda lf: pl.concat([lf.head(5), lf.tail(700)]),
}


@pytest.mark.parametrize(
    "options",
    [TINY, replace(TINY, partitions=2), PARTITIONED, ORDINARY],
    ids=["tiny", "two", "three", "ordinary"],
)
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("use", list(USES))
@pytest.mark.parametrize("values", list(VALUES))
def test_made_order(tmp_path: Path, values: str, use: str, nranks: int, options: ExecutionOptions) -> None:
    path = tmp_path / "rows.parquet"
    frame = pl.DataFrame({"x": [(n * 467) % ROWS for n in range(ROWS)]})
    frame.write_parquet(path, row_group_size=37)
    made = pl.scan_parquet(path).select(VALUES[values].alias("z"), pl.lit(3).alias("y"))
    assert_like_polars(USES[use](made), nranks, options)

"""Joins by other conditions than equality, of sides that were sent by the hash of the columns that these compare."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query


def _joins(q: pl.LazyFrame) -> dict[str, pl.LazyFrame]:
    """Return joins of groups, which lie by the hash of ``i``."""
    doubled = q.with_columns(pl.col("i") * 2)
    return {
        "above itself": q.join_where(q, pl.col("i") > pl.col("i_right")),
        "two conditions": q.join_where(q, pl.col("i") > pl.col("i_right"), pl.col("n") <= pl.col("n_right")),
        "above another": q.join_where(doubled, pl.col("i") >= pl.col("i_right")),
        "cross": q.join(q, how="cross"),
        "cross, filtered": q.join(q, how="cross").filter(pl.col("i") + 1 == pl.col("i_right")),
        "as-of": q.sort("i").join_asof(doubled.sort("i"), on="i", strategy="backward"),
        "as-of of itself": q.sort("i").join_asof(q.sort("i"), on="i", allow_exact_matches=False),
    }


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("name", _joins(pl.LazyFrame({"i": [1], "n": [1]})))
def test_all_pairs_are_found(nranks: int, partitions: int, name: str, tmp_path: Path) -> None:
    pl.DataFrame({"i": [k % 17 - 5 for k in range(60)], "s": range(60)}).write_parquet(
        tmp_path / "t.parquet", row_group_size=7
    )
    scan = pl.scan_parquet(tmp_path / "t.parquet")
    for groups in (
        scan.group_by("i").agg(pl.col("s").sum().alias("n")),
        scan.group_by("i").agg(pl.col("s").head(2).len().alias("n")),
    ):
        query = _joins(groups)[name]
        options = ExecutionOptions(
            broadcast_limit=0, small_limit=0, partitions=partitions, fallback_mode="silent"
        )

        def work(
            transport: LocalTransport, query: pl.LazyFrame = query, options: ExecutionOptions = options
        ) -> pl.DataFrame:
            return run_query(query, transport, options=options).frame

        expected = query.collect()
        assert expected.height
        assert_frame_equal(pl.concat(run_ranks(nranks, work)), expected, check_row_order=False)

"""What nobody reads: columns of a part that is counted, rows behind a slice, frames without columns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query

RANKS = pytest.mark.parametrize("nranks", [2, 3])


def answer(nranks: int, query: list[pl.LazyFrame]) -> pl.DataFrame:
    """Return the answer of ranks that each have a query of their own."""

    def work(transport: LocalTransport) -> pl.DataFrame:
        return run_query(query[transport.rank], transport, options=ExecutionOptions.tiny("silent")).frame

    return pl.concat(run_ranks(nranks, work))


@RANKS
def test_a_hidden_part_of_which_only_the_rows_are_counted(nranks: int, tmp_path: Path) -> None:
    pl.DataFrame({"u": [6, 7], "b": [True, False]}).write_parquet(tmp_path / "t.parquet")
    table = pl.scan_parquet(tmp_path / "t.parquet")
    lf = pl.SQLContext(t=table).execute("SELECT u, (SELECT MAX(u) FROM t) AS m FROM t").select(pl.len())
    assert answer(nranks, [lf] * nranks).item() == 2


@RANKS
@pytest.mark.parametrize("owner", [0, 1])
def test_frames_without_columns_beside_others(nranks: int, owner: int) -> None:
    """Each frame lies on one rank: the other ranks have nothing of it, not even a row to be counted by."""

    def query(rank: int) -> pl.LazyFrame:
        bare = pl.LazyFrame(height=3 if rank == owner else 0)
        values = pl.LazyFrame({"x": [1, 2, 3] if rank != owner and rank < 2 else []}, schema={"x": pl.Int64})
        return pl.concat([bare, values], how="horizontal")

    assert answer(nranks, [query(rank) for rank in range(nranks)])["x"].to_list() == [1, 2, 3]


@RANKS
def test_frames_without_columns_of_another_height_are_refused(nranks: int) -> None:
    def query(rank: int) -> pl.LazyFrame:
        values = pl.LazyFrame({"x": [1] if rank == 0 else []}, schema={"x": pl.Int64})
        return pl.concat([pl.LazyFrame(height=1), values], how="horizontal")

    with pytest.raises(pl.exceptions.ShapeError):
        answer(nranks, [query(rank) for rank in range(nranks)])


@RANKS
@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_a_file_behind_a_slice_may_be_of_other_types(nranks: int, rows: int, tmp_path: Path) -> None:
    """A step that Polars does not show keeps the slice from the scan: each rank reads its part of the files."""
    for number in range(nranks):
        values = pl.Series("x", [2 * number, 2 * number + 1])
        last = number == nranks - 1
        pl.DataFrame([values if last else values.cast(pl.Int32)]).write_parquet(
            tmp_path / f"{number}.parquet"
        )
    lf = pl.scan_parquet(tmp_path / "*.parquet").gather_every(1, 1).head(rows)
    try:
        wanted = lf.collect()
    except pl.exceptions.SchemaError:
        assert rows + 1 > 2 * (nranks - 1)
        with pytest.raises(pl.exceptions.SchemaError):
            answer(nranks, [lf] * nranks)
    else:
        assert answer(nranks, [lf] * nranks).rows() == wanted.rows()

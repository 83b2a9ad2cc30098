"""Queries that were once answered wrongly: over files and data frames, on 1 to 3 ranks, with all rows on one or not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, compare_answers
from execute.local_transport import run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query
from support.wrong_answers import ORDERED, frames, from_files, queries

QUERIES = queries()


@pytest.mark.parametrize(
    ("source", "options"),
    [("files", TINY), ("files", ORDINARY), ("all", TINY), ("last", ORDINARY), ("all", PARTITIONED)],
    ids=["files-tiny", "files", "all-tiny", "last", "partitioned"],
)
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.filterwarnings("ignore")
def test_answer(tmp_path: Path, name: str, nranks: int, source: str, options: ExecutionOptions) -> None:
    make = QUERIES[name]
    whole = from_files(tmp_path) if source == "files" else tuple(frame.lazy() for frame in frames())
    expected = make(*whole).collect(engine="streaming")

    def part(frame: pl.DataFrame, rank: int) -> pl.LazyFrame:
        if source == "all":
            low, high = (frame.height * r // nranks for r in (rank, rank + 1))
            return frame.slice(low, high - low).lazy()
        return (frame if rank == nranks - 1 else frame.clear()).lazy()

    def work(transport) -> pl.DataFrame:  # type: ignore[no-untyped-def]
        tables = whole if source == "files" else tuple(part(frame, transport.rank) for frame in frames())
        return run_query(make(*tables), transport, options=options).frame

    parts = run_ranks(nranks, work)
    assert len({tuple(frame.schema.items()) for frame in parts}) == 1
    compare_answers(pl.concat(parts), expected, ordered=name in ORDERED)

"""Ranks that run the same query and do different things with it: an error on all of them, not a wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest
from rapidsmpf.communicator.communicator import Communicator

from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import QueryMismatchError
from support.cluster import on_ranks


def query(rank: int) -> pl.LazyFrame:
    return pl.LazyFrame({"a": [1, 2, 3] if rank == 0 else []}, schema={"a": pl.Int64}).sort("a")


CALLS: Mapping[str, Callable[[pl.LazyFrame, Path, SPMDEngine], object]] = {
    "collect": lambda lf, folder, engine: lf.collect(engine=engine),
    "gather": lambda lf, folder, engine: engine.gather(pl.DataFrame({"a": [engine.rank]})),
    "gather_statistics": lambda lf, folder, engine: engine.gather_statistics(),
    "sink_parquet": lambda lf, folder, engine: lf.sink_parquet(folder / "out", engine=engine),
    "sink_csv": lambda lf, folder, engine: lf.sink_csv(folder / "out", engine=engine),
    "collect_batches": lambda lf, folder, engine: list(lf.collect_batches(engine=engine)),
    "sink_batches": lambda lf, folder, engine: lf.sink_batches(lambda batch: None, engine=engine),
    "sink_delta": lambda lf, folder, engine: lf.sink_delta(folder / "table", engine=engine),
    "sink_delta of all ranks' rows": lambda lf, folder, engine: lf.sink_delta(
        folder / "table", engine=engine, delta_write_options={"schema_mode": "merge"}
    ),
}
PAIRS = [
    (first, second)
    for first, second in itertools.permutations(CALLS, 2)
    if not (first.startswith("sink_delta") and second.startswith("sink_delta"))
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_ranks_that_do_different_things_all_raise(first: str, second: str, tmp_path: Path) -> None:
    def work(comm: Communicator) -> int:
        with SPMDEngine(comm=comm) as engine:
            call = CALLS[first if comm.rank == 0 else second]
            name = {0: first, 1: second}
            with pytest.raises(QueryMismatchError) as caught:
                call(query(comm.rank), tmp_path, engine)
            for rank in (0, 1):
                assert f"rank {rank} calls {name[rank].split(' ')[0]}()" in str(caught.value)
            return query(comm.rank).collect(engine=engine).height

    assert sum(on_ranks(2, work)) == 3
    assert not list(tmp_path.iterdir())

"""One rank of a benchmark run: started by ``rrun``, runs the queries whose turn it is.

With the engine of Dask or Ray it is the client of as many ranks, and started by itself.

Rank 0 leaves the gathered answers in the output directory, ``q<n>.parquet``. A query that fails ends the process: after
a failure the ranks no longer agree on where they are, so the benchmark starts new ones for the queries that are left.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl

from benchmarks.pdsh.queries import QUERIES, Query, Tables
from benchmarks.pdsh.ranks import ENGINES
from benchmarks.pdsh.turns import Message, take_turns
from cudf_polars.engine.core import StreamingEngine
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.lower import FallbackWarning
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id


def open_engine(kind: str, nranks: int) -> StreamingEngine:
    """Start an engine; under SPMD ``rrun`` has started the ranks."""
    if kind == "dask":
        from cudf_polars.engine.dask import DaskEngine

        return DaskEngine(n_workers=nranks)
    if kind == "ray":
        from cudf_polars.engine.ray import RayEngine

        return RayEngine(
            num_ranks=nranks, ray_init_options={"include_dashboard": False, "log_to_driver": False}
        )
    return SPMDEngine()


def _rank(engine: StreamingEngine) -> int:
    return engine.rank if isinstance(engine, SPMDEngine) else 0


def _gather(engine: StreamingEngine, frame: pl.DataFrame) -> pl.DataFrame:
    if not isinstance(engine, SPMDEngine):
        return frame  # the client has it all
    with reserve_op_id() as op_id:
        return allgather_polars_dataframe(engine=engine, local_df=frame, op_id=op_id)


def slowest(engine: StreamingEngine, seconds: float) -> float:
    """Give all ranks the largest of their times; they leave together, as from a barrier."""
    times: list[float] = _gather(engine, pl.DataFrame({"seconds": [seconds]}))["seconds"].to_list()
    return max(times)


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def run_untimed(engine: StreamingEngine, query: Query, tables: Tables, out: Path) -> Message:
    """Run a query for its answer, which rank 0 writes; says how many rows it has, and what was not distributed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        local = query.build(tables).collect(engine=engine)
    fallbacks = [str(warning.message) for warning in caught if issubclass(warning.category, FallbackWarning)]
    answer = _gather(engine, local)
    if _rank(engine) == 0:
        answer.write_parquet(out / f"{query.name}.parquet")
    return {"rows": answer.height, "fallbacks": fallbacks}


def run_timed(engine: StreamingEngine, query: Query, tables: Tables) -> Message:
    """Run a query for the seconds that the slowest rank takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        slowest(engine, 0.0)  # a barrier: all start together
        seconds = _timed(lambda: query.build(tables).collect(engine=engine))
        return {"seconds": slowest(engine, seconds)}


def main() -> int:
    """Run the queries that the benchmark asks for on this rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdsh.worker", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--floats", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, default="spmd")
    parser.add_argument("--ranks", type=int, default=1, help="of Dask and Ray")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="where the benchmark listens")
    arguments = parser.parse_args()
    tables = Tables(arguments.data, floats=arguments.floats)
    with open_engine(arguments.engine, arguments.ranks) as engine:

        def run(number: int, timed: bool) -> Message:
            if timed:
                return run_timed(engine, QUERIES[number], tables)
            return run_untimed(engine, QUERIES[number], tables, arguments.out)

        take_turns(arguments.port, _rank(engine), run)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""One rank of a benchmark run: started by ``rrun``, runs the queries, writes what it found.

With the engine of Dask or Ray it is the client of as many ranks, and started by itself.

Rank 0 writes into the output directory, per query, ``q<n>.json`` (:class:`Record`), ``q<n>.parquet``
(the gathered answer) and, where it also ran Polars, ``q<n>-polars.parquet``. A query that fails leaves
``q<n>-error-<rank>.txt`` and ends the process: after a failure the ranks no longer agree on where
they are, so the caller starts new ones for the queries that are left.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl

from benchmarks.pdsh.queries import QUERIES, Query, Tables
from benchmarks.pdsh.ranks import ENGINES, STARTED
from cudf_polars.engine.core import StreamingEngine
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.lower import FallbackWarning
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id


@dataclass
class Record:
    """What rank 0 found for one query.

    Attributes
    ----------
    query
        1 to 22.
    ours
        Seconds of each timed iteration of ``collect(engine=engine)``, the slowest rank's.
    polars
        Seconds of each timed iteration of ``collect(engine="streaming")``; empty if not run.
    rows
        Rows of the whole answer.
    fallbacks
        What the engine could not distribute, as its warnings say.
    """

    query: int
    ours: list[float] = field(default_factory=list)
    polars: list[float] = field(default_factory=list)
    rows: int = 0
    fallbacks: list[str] = field(default_factory=list)


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


def run_query(
    engine: StreamingEngine, query: Query, tables: Tables, *, iterations: int, with_polars: bool, out: Path
) -> None:
    """Run one query: one untimed round that gives the answers, then the timed rounds.

    With ``with_polars`` (one rank), Polars and the engine take turns at going first, so that neither
    always finds the caches as the other left them.
    """
    record = Record(query.number)

    def ours() -> pl.DataFrame:
        return query.build(tables).collect(engine=engine)

    def polars() -> pl.DataFrame:
        return query.build(tables).collect(engine="streaming")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        local = ours()
    record.fallbacks = [
        str(warning.message) for warning in caught if issubclass(warning.category, FallbackWarning)
    ]
    answer = _gather(engine, local)
    record.rows = answer.height
    if _rank(engine) == 0:
        answer.write_parquet(out / f"{query.name}.parquet")
    if with_polars:
        polars().write_parquet(out / f"{query.name}-polars.parquet")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for iteration in range(iterations):
            if with_polars and iteration % 2 == 0:
                record.polars.append(_timed(polars))
            slowest(engine, 0.0)  # a barrier: all start together
            record.ours.append(slowest(engine, _timed(ours)))
            if with_polars and iteration % 2 == 1:
                record.polars.append(_timed(polars))
    if _rank(engine) == 0:
        # Renamed into place: the caller takes the file's presence for the query's success.
        scratch = out / f"{query.name}.json.part"
        scratch.write_text(json.dumps(asdict(record)))
        scratch.rename(out / f"{query.name}.json")


def main() -> int:
    """Run the queries that the arguments name on this rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdsh.worker", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--floats", action="store_true")
    parser.add_argument("--queries", required=True, help="numbers, joined by commas")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--with-polars", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, default="spmd")
    parser.add_argument("--ranks", type=int, default=1, help="of Dask and Ray")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    tables = Tables(arguments.data, floats=arguments.floats)
    with open_engine(arguments.engine, arguments.ranks) as engine:
        (arguments.out / STARTED).touch()
        for number in map(int, arguments.queries.split(",")):
            query = QUERIES[number]
            try:
                run_query(
                    engine,
                    query,
                    tables,
                    iterations=arguments.iterations,
                    with_polars=arguments.with_polars,
                    out=arguments.out,
                )
            except Exception:
                error = arguments.out / f"{query.name}-error-{_rank(engine)}.txt"
                error.write_text(traceback.format_exc())
                raise
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

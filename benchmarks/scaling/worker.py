"""One process of one run: ``python -m benchmarks.scaling.worker ENGINE``, or a rank of it under ``rrun``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def bind(cores: int, rank: int | None) -> None:
    """Bind this process to the core of its rank, or to the first cores, before anything starts threads."""
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {mine[rank % len(mine)]} if rank is not None else set(mine[:cores]))


def main() -> None:
    """Run what the command line says and print the result of rank 0 as a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["riverrun", "polars"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--cores", type=int, required=True)
    given = parser.parse_args()
    bind(given.cores, int(os.environ["RRUN_RANK"]) if given.engine == "riverrun" else None)

    import polars as pl

    from benchmarks.pdsh.queries import QUERIES, Tables

    @contextlib.contextmanager
    def opened() -> Iterator[tuple[int, Callable[[pl.LazyFrame], int], Callable[[float], float]]]:
        """Yield the rank, what runs a query to its number of rows, and what gives all ranks their largest number."""
        if given.engine == "polars":
            yield 0, lambda query: query.collect(engine="streaming").height, lambda seconds: seconds
            return
        from benchmarks.pdsh.worker import slowest
        from cudf_polars.engine.spmd import SPMDEngine

        with SPMDEngine() as engine:

            def run(query: pl.LazyFrame) -> int:
                return query.collect(engine=engine).height

            yield engine.rank, run, functools.partial(slowest, engine)

    tables = Tables(given.data, floats=False)
    with opened() as (rank, run, slowest):

        def timed(query: Callable[[], pl.LazyFrame]) -> float:
            slowest(0.0)  # a barrier
            start = time.perf_counter()
            run(query())
            return slowest(time.perf_counter() - start)

        seconds: dict[str, float] = {}
        rows: dict[str, float] = {}
        for number in map(int, given.queries.split(",")):
            query = QUERIES[number]
            # Each rank holds a part of the answer. Whether any has rows is compared, not how many they are.
            rows[query.name] = float(slowest(float(run(query.build(tables)) > 0)))
            build = functools.partial(query.build, tables)
            seconds[query.name] = min(timed(build) for _ in range(given.repeats))
        small = pl.LazyFrame({"k": [i % 7 for i in range(1000)], "v": list(range(1000))})
        grouped = small.group_by("k").agg(pl.col("v").sum()).sort("k")
        costs = [timed(lambda: grouped) for _ in range(110)][10:]
    if rank == 0:
        found = {
            "total_seconds": sum(seconds.values()),
            "small_query_seconds": statistics.median(costs),
            "seconds": seconds,
            "rows": rows,
        }
        print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

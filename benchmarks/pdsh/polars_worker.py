"""Polars' streaming engine alone in its process, which takes turns with the ranks.

Our engine is not imported here, and the setting of the ranks' threads does not apply: Polars runs as it does by itself.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import polars as pl

from benchmarks.pdsh.queries import QUERIES, Tables
from benchmarks.pdsh.turns import Message, take_turns


def main() -> int:
    """Run the queries that the benchmark asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdsh.polars_worker", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--floats", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="where the benchmark listens")
    arguments = parser.parse_args()
    tables = Tables(arguments.data, floats=arguments.floats)

    def run(number: int, timed: bool) -> Message:
        query = QUERIES[number]
        if timed:
            start = time.perf_counter()
            query.build(tables).collect(engine="streaming")
            return {"seconds": time.perf_counter() - start}
        answer = query.build(tables).collect(engine="streaming")
        answer.write_parquet(arguments.out / f"{query.name}.parquet")
        return {"rows": answer.height, "fallbacks": []}

    take_turns(arguments.port, 0, run, threads=pl.thread_pool_size())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

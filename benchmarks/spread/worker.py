"""One rank: runs every query in turns, by all ranks and by one: ``python -m benchmarks.spread.worker``."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import warnings
from pathlib import Path

import polars as pl

from benchmarks.spread.queries import QUERIES, gathering


def main() -> None:
    """Run what the command line says and print the results as lines of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--queries", required=True)
    given = parser.parse_args()
    from cudf_polars.engine.spmd import SPMDEngine

    warnings.simplefilter("ignore")
    with SPMDEngine() as engine:
        for name in given.queries.split(";"):
            query = QUERIES[name](pl.scan_parquet(given.data / "*.parquet"))
            seconds: dict[str, list[float]] = {"all": [], "one": []}
            for turn in range(given.turns + 1):  # the first one warms up
                for who in ("all", "one"):
                    with gathering() if who == "one" else contextlib.nullcontext():
                        start = time.perf_counter()
                        query.collect(engine=engine)
                        taken = time.perf_counter() - start
                    gathered = bool(engine.last_query and engine.last_query.fallbacks)
                    if gathered != (who == "one"):
                        raise AssertionError(f"{name}: rows were gathered by the wrong one")
                    if turn:
                        seconds[who].append(taken)
            result = {"query": name, "rank": engine.rank, "seconds": seconds}
            print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

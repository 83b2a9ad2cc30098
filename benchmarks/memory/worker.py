"""One rank that runs one query under a budget: ``python -m benchmarks.memory.worker``."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from benchmarks.memory.queries import QUERIES
from benchmarks.memory.results import tell
from benchmarks.memory.sampler import RESIDENT, held, sampled


def main() -> None:
    """Run what the command line says and tell the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("query", choices=list(QUERIES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--budget", required=True)
    given = parser.parse_args()
    from cudf_polars.engine.spmd import SPMDEngine

    options = {"spill_device_limit": given.budget, "spill_directory": str(given.folder / "spill")}
    with SPMDEngine(rapidsmpf_options=options) as engine:
        pid = os.getpid()
        before = held(pid, RESIDENT)
        with sampled(pid, RESIDENT) as peak:
            start = time.perf_counter()
            QUERIES[given.query](given.data).sink_parquet(given.folder / "output", engine=engine)
            seconds = time.perf_counter() - start
        result = {
            "rank": engine.rank,
            "seconds": seconds,
            "ready_bytes": before,
            "peak_bytes": peak.nbytes,
            "above_bytes": peak.nbytes - before,
            "explain": engine.last_query.explain() if engine.last_query else "",
        }
    tell(given.folder, result)


if __name__ == "__main__":
    main()

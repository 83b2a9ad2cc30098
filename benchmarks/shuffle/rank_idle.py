"""What an engine costs that has nothing to do; a rank, started by ``rrun``. Rank 0 appends a record to ``--output``."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import polars as pl

from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id


def _launcher_seconds() -> float:
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run a query, then wait; and once more with one rank that comes late to a collective."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffle.rank_idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with SPMDEngine() as engine:

        def gather(value: float) -> list[float]:
            with reserve_op_id() as op_id:
                frame = allgather_polars_dataframe(
                    engine=engine, local_df=pl.DataFrame({"value": [value]}), op_id=op_id
                )
            found: list[float] = frame["value"].to_list()
            return found

        query = pl.LazyFrame({"k": [1, 2, 3] * 1000, "v": range(3000)}).group_by("k").agg(pl.sum("v"))
        query.collect(engine=engine)
        gather(0.0)
        launcher, busy = _launcher_seconds(), time.process_time()
        time.sleep(arguments.seconds)
        idle = gather(time.process_time() - busy)
        launcher = _launcher_seconds() - launcher

        busy = time.process_time()
        if engine.rank == engine.nranks - 1:
            time.sleep(arguments.seconds)
        gather(0.0)
        waiting = gather(time.process_time() - busy)
        if engine.rank == 0:
            record = {
                "case": "idle_engine",
                "ranks": engine.nranks,
                "seconds": arguments.seconds,
                "rank_cpu_seconds": idle,
                "launcher_cpu_seconds": launcher,
                "waiting_for_a_rank_cpu_seconds": waiting,
            }
            with arguments.output.open("a") as out:
                out.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

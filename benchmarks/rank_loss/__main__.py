"""Ranks of Dask and Ray are killed at random moments of a query; how soon does the client raise, and name them?

    python -m benchmarks.rank_loss --kills 20 --output build/results/rank_loss.json

A client runs one query after the other on two ranks of a cluster on this machine. A rank, chosen at random, is killed
(SIGKILL) at a random moment of a query. Measured is the time from there to the client's ``RankFailedError``. It has
to name the rank's process, and then a new engine on the same cluster has to give the right answer. The exit status is
1 if one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from rapidsmpf.error import RankFailedError

from benchmarks.environment import write_report
from cudf_polars.engine.core import StreamingEngine

RANKS = 2
ROWS = 2_000_000
LIMIT_SECONDS = 10.0
_WAIT_SECONDS = 120.0


def query(table: Path) -> pl.LazyFrame:
    """Build a query with two shuffles."""
    rows = pl.scan_parquet(table)
    sums = rows.group_by("key").agg(pl.sum("value").alias("total"))
    return rows.join(sums, on="key").select(pl.len(), pl.sum("total"))


@contextlib.contextmanager
def dask_cluster() -> Iterator[Callable[[], StreamingEngine]]:
    """Start a cluster of Dask; gives what makes an engine once all workers are there."""
    import dask
    from distributed import Client, LocalCluster

    from cudf_polars.engine.dask import DaskEngine

    # Where a worker has just been lost this long after another was, LocalCluster would give its nanny up.
    lasting = {"distributed.deploy.lost-worker-timeout": "1 hour"}
    with (
        dask.config.set(lasting),
        LocalCluster(
            n_workers=RANKS,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=":0",
            silence_logs="CRITICAL",
        ) as cluster,
        Client(cluster) as client,
    ):
        known: list[set[str]] = [set()]

        def start() -> StreamingEngine:
            # The nanny of a worker that was killed starts another one, at another address.
            end = time.monotonic() + _WAIT_SECONDS
            while True:
                workers = set(client.nthreads())
                if len(workers) == RANKS and workers != known[0]:
                    known[0] = workers
                    return DaskEngine(dask_client=client)
                if time.monotonic() > end:
                    raise TimeoutError(f"the cluster has the workers {workers}")
                time.sleep(0.05)

        yield start


@contextlib.contextmanager
def ray_cluster() -> Iterator[Callable[[], StreamingEngine]]:
    """Start a cluster of Ray; gives what makes an engine."""
    import ray

    from cudf_polars.engine.ray import RayEngine

    ray.init(num_cpus=RANKS, include_dashboard=False, logging_level="CRITICAL", log_to_driver=False)
    try:
        yield lambda: RayEngine(num_ranks=RANKS)
    finally:
        ray.shutdown()


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster}


def lose_one(
    engine: StreamingEngine, table: Path, expected: pl.DataFrame, chance: random.Random
) -> dict[str, Any]:
    """Kill a rank in the middle of a query; returns what happened."""
    for _ in range(2):  # the first is slower
        start = time.perf_counter()
        if not query(table).collect(engine=engine).equals(expected):
            raise AssertionError("the answer is wrong")
        lasts = time.perf_counter() - start
    rank = chance.randrange(RANKS)
    pid = engine.gather_cluster_info()[rank].pid
    after = chance.uniform(0, lasts)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(after, kill)
    timer.start()
    try:
        while True:  # the one that runs then, or the next one, fails
            query(table).collect(engine=engine)
    except RankFailedError as error:
        seconds = time.perf_counter() - killed[0]
        named = (error.rank, error.pid) == (rank, pid) and "is lost" in str(error)
        text = str(error)
    finally:
        timer.join()
    return {
        "query_seconds": lasts,
        "killed_after_seconds": after,
        "rank": rank,
        "seconds": seconds,
        "named": named,
        "message": text,
    }


def run(kind: str, kills: int, table: Path, expected: pl.DataFrame, seed: int) -> dict[str, Any]:
    """Kill as many ranks, each of an engine of its own on the same cluster."""
    chance = random.Random(seed)
    losses = []
    with CLUSTERS[kind]() as start:
        for _ in range(kills):
            with start() as engine:
                losses.append(lose_one(engine, table, expected, chance))
            print(f"{kind}: rank {losses[-1]['rank']} named after {losses[-1]['seconds']:.2f} s", flush=True)
        with start() as engine:
            usable = query(table).collect(engine=engine).equals(expected)
    seconds = [loss["seconds"] for loss in losses]
    return {
        "kills": kills,
        "median_seconds": statistics.median(seconds),
        "max_seconds": max(seconds),
        "all_named": all(loss["named"] for loss in losses),
        "usable_afterwards": usable,
        "losses": losses,
    }


def main() -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rank_loss",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20, help="for each kind of cluster (default 20)")
    parser.add_argument("--engine", default="dask,ray", help="some of dask,ray")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args()
    load = [os.getloadavg()]
    with tempfile.TemporaryDirectory(prefix="rank-loss-") as scratch:
        table = Path(scratch) / "table.parquet"
        numbers = pl.int_range(ROWS, eager=True)
        frame = pl.DataFrame({"key": (numbers * 7919) % (ROWS // 4), "value": numbers})
        frame.write_parquet(table, row_group_size=ROWS // 16)
        expected = query(table).collect()
        found = {
            kind: run(kind, arguments.kills, table, expected, arguments.seed)
            for kind in arguments.engine.split(",")
        }
    load.append(os.getloadavg())
    for kind, record in found.items():
        print(
            f"{kind}: {record['kills']} kills, named after {record['median_seconds']:.2f} s in the median,"
            f" {record['max_seconds']:.2f} s at most"
        )
    if arguments.output is not None:
        write_report(
            arguments.output,
            load_average_before_and_after=load,
            engines=found,
        )
    good = all(
        record["all_named"] and record["usable_afterwards"] and record["max_seconds"] < LIMIT_SECONDS
        for record in found.values()
    )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Lineitem written to ``pl.PartitionBy`` by two ranks, by one with all cores and by one with a single core, in turns.

    python -m benchmarks.partition_by --scale 10 --keys l_shipmode

What is compared is the time from the call to its return, the median of the turns. Two ranks share the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.environment import write_report
from benchmarks.pdsh.data import ensure, tool

RANKS = {"one rank": 1, "two ranks": 2, "one rank, one core": 1}


def seconds(who: str, table: Path, keys: str, folder: Path) -> float:
    """Write once and return the longest time that a rank took."""
    target = folder / "out"
    command = [tool("rrun"), "-n", str(RANKS[who]), sys.executable, "-m", "benchmarks.partition_by.worker"]
    command += [str(table), keys, str(target)]
    env = dict(os.environ)
    if who == "one rank, one core":
        core = min(os.sched_getaffinity(0))
        command = ["taskset", "-c", str(core), *command]
        env["POLARS_MAX_THREADS"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr)[-2000:])
    said: list[float] = [json.JSONDecoder().raw_decode(text)[0] for text in done.stdout.split("RESULT ")[1:]]
    assert len(said) == RANKS[who]
    subprocess.run(["rm", "-r", str(target)], check=True)
    return max(said)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.partition_by",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--keys", default="l_shipmode", help="columns, with commas")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files go")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    table = ensure(given.scale).directory / "lineitem.parquet"
    runs: dict[str, list[float]] = {who: [] for who in RANKS}
    with tempfile.TemporaryDirectory(prefix="riverrun-partition-by-", dir=given.folder) as name:
        for turn in range(given.turns + 1):  # the first one warms up
            for who, took in runs.items():
                last = seconds(who, table, given.keys, Path(name))
                if turn:
                    took.append(last)
                    print(f"{who:20} {last:6.2f} s", flush=True)
    medians = {who: statistics.median(took) for who, took in runs.items()}
    ratios = {who: medians["two ranks"] / medians[who] for who in RANKS if who != "two ranks"}
    for who, ratio in ratios.items():
        print(f"two ranks by {who}: {ratio:.2f}")
    if given.output:
        write_report(
            given.output, scale=given.scale, keys=given.keys, seconds=runs, medians=medians, ratios=ratios
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

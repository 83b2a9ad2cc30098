"""Several queries at the same time on a machine of many cores, each on two cores of its own and in a memory cgroup.

    python -m benchmarks.out_of_core.streams --queries pdsh --record out.json -- --scale 100 --memory 4GiB --ranks 1,2

What follows ``--`` is for ``python -m benchmarks.out_of_core``, which is run once a query. The runs of one query follow
each other on the same cores; streams share the memory bus and the disk, so times are compared within one record only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from benchmarks.environment import write_report
from benchmarks.out_of_core.queries import PDSH, SIX


def main() -> int:
    """Run what the command line says; the exit status is 1 if that of a query is."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.out_of_core.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--queries", default=",".join(SIX), help="their names, the longest first; pdsh: the 22"
    )
    parser.add_argument("--cores", type=int, default=2, help="of a stream")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no query begins after this time")
    parser.add_argument("--record", type=Path, required=True, help="where the record of all queries goes")
    parser.add_argument("benchmark", nargs="+", help="options of benchmarks.out_of_core, after --")
    given = parser.parse_args()
    queries = list(PDSH) if given.queries == "pdsh" else given.queries.split(",")
    cores = sorted(os.sched_getaffinity(0))
    free: SimpleQueue[list[int]] = SimpleQueue()
    streams = [cores[at : at + given.cores] for at in range(0, len(cores) - given.cores + 1, given.cores)]
    for stream in streams:
        free.put(stream)
    begin = time.monotonic()
    reports: dict[str, object] = {}

    def run(query: str, folder: Path) -> int:
        if time.monotonic() - begin > given.seconds:
            print(f"{query}: not begun", flush=True)
            return 1
        own, record = free.get(), folder / f"{query}.json"
        command = [sys.executable, "-m", "benchmarks.out_of_core", *given.benchmark]
        try:
            done = subprocess.run(
                [*command, "--queries", query, "--output", str(record)],
                preexec_fn=lambda: os.sched_setaffinity(0, own),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        finally:
            free.put(own)
        print(done.stdout, end="", flush=True)
        if record.exists():
            reports[query] = json.loads(record.read_text())["runs"]
            # After each query, for what is cut off later still has a record.
            write_report(given.record, cores_of_a_stream=given.cores, streams=len(streams), queries=reports)
        return done.returncode

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(len(streams)) as pool:
        return max(pool.map(lambda query: run(query, Path(name)), queries))


if __name__ == "__main__":
    sys.exit(main())

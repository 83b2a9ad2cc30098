"""Strong scaling: PDS-H on more and more ranks of one core each, beside Polars on as many threads.

    python -m benchmarks.scaling --scale 10 --ranks 1,2,4,8,16 --output results.json

Each rank has one thread of Polars (``POLARS_MAX_THREADS=1``) and is bound to one core; Polars is bound to as many
cores as it has threads. Each query runs once untimed, then ``--repeats`` times; what counts is the sum of the queries'
best times. The last cell is what a query over 1,000 rows costs on each number of ranks: the median of 100 runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environment import write_report
from benchmarks.pdsh.data import default_directory, ensure, tool
from benchmarks.pdsh.queries import QUERIES


def run(engine: str, cores: int, data: Path, repeats: int, queries: str) -> dict[str, Any]:
    """Run the queries by an engine on so many cores and return what rank 0 found."""
    worker = [sys.executable, "-m", "benchmarks.scaling.worker", engine]
    command = [*worker, f"--data={data}", f"--repeats={repeats}", f"--queries={queries}", f"--cores={cores}"]
    threads = cores if engine == "polars" else 1
    if engine == "riverrun":
        command = [tool("rrun"), "-n", str(cores), "--bind-to", "none", *command]
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads), "RAPIDSMPF_DEVICE": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{engine} on {cores} cores: {(done.stdout + done.stderr)[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.split("RESULT ", 1)[1].splitlines()[0])
    return found


def main() -> int:
    """Run what the command line says; the exit status is 1 if answers differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", type=Path, help="default: data/pdsh-sf<scale>, made if it is not there")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--queries", default=",".join(str(number) for number in QUERIES))
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    ensure(given.scale, given.data)
    data = default_directory(given.scale) if given.data is None else given.data
    found: dict[str, dict[str, Any]] = {"riverrun": {}, "polars": {}}
    for cores in given.ranks.split(","):
        for engine in ("riverrun", "polars"):
            each = run(engine, int(cores), data, given.repeats, given.queries)
            found[engine][cores] = each
            first = found[engine][given.ranks.split(",")[0]]["total_seconds"]
            print(
                f"{engine} on {cores}: {each['total_seconds']:.2f} s, {first / each['total_seconds']:.2f} times"
                f" as fast; a query over 1,000 rows {1e3 * each['small_query_seconds']:.2f} ms",
                flush=True,
            )
            if given.output is not None:
                write_report(given.output, scale_factor=given.scale, cores_to_results=found)
    rows = {json.dumps(each["rows"]) for runs in found.values() for each in runs.values()}
    if len(rows) > 1:
        print(f"the numbers of rows differ: {rows}")
    return len(rows) - 1


if __name__ == "__main__":
    sys.exit(main())

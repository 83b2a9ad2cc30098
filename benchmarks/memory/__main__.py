"""The memory that each rank takes for queries over tables of several times its budget.

    python -m benchmarks.memory --rows 8000000 --budget 100MB --ranks 1,2

Each rank's resident memory is sampled every 5 ms by another process, from when the engine is ready until the query has
ended. The answers, Parquet files, are counted and summed. The exit status is 1 if one is wrong, or if a rank took more
than ``--most`` above what it had when the engine was ready.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.environment import write_report
from benchmarks.memory.queries import QUERIES, make_tables
from benchmarks.memory.results import run_ranks

MIB = 1 << 20


def run_once(query: str, ranks: int, data: Path, folder: Path, budget: str) -> list[dict[str, Any]]:
    """Run a query on new ranks; return what each says.

    Raises
    ------
    RuntimeError
        If a rank fails, with the end of what it printed.
    """
    for name in ("output", "spill"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "spill").mkdir(parents=True)
    command = [
        sys.executable,
        *("-m", "benchmarks.memory.worker", query),
        *(f"--data={data}", f"--folder={folder}", f"--budget={budget}"),
    ]
    return run_ranks(command, ranks, folder, f"{query} on {ranks} ranks")


def wrong(folder: Path, rows: int) -> str | None:
    """Say what is wrong with an answer: each key below ``rows`` occurs once."""
    keys = pl.scan_parquet(folder / "output" / "*.parquet").select("k")
    counted, total = keys.select(pl.len(), pl.col("k").sum().alias("sum")).collect(engine="streaming").row(0)
    expected = (rows, rows * (rows - 1) // 2)
    return None if (counted, total) == expected else f"{counted} keys of sum {total}, not {expected}"


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=8_000_000, help="of 24 bytes each, in each table")
    parser.add_argument("--budget", default="100MB")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--most", type=int, default=200, help="MiB that a rank may take")
    parser.add_argument("--folder", type=Path, help="where the tables, answers and spill files go")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    runs: list[dict[str, Any]] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="riverrun-memory-", dir=given.folder) as name:
        folder = Path(name)
        make_tables(folder, given.rows)
        for query in given.queries.split(","):
            for ranks in map(int, given.ranks.split(",")):
                each = run_once(query, ranks, folder, folder, given.budget)
                above = [result["above_bytes"] / MIB for result in each]
                problem = wrong(folder, given.rows)
                failed = failed or problem is not None or max(above) > given.most
                print(
                    f"{query:12} {ranks} ranks: {' / '.join(f'{mib:.0f}' for mib in above)} MiB above ready,"
                    f" {max(result['seconds'] for result in each):.1f} s{'; ' + problem if problem else ''}",
                    flush=True,
                )
                runs.append({"query": query, "ranks": ranks, "problem": problem, "each_rank": each})
    if given.output:
        write_report(given.output, rows=given.rows, budget=given.budget, most_mib=given.most, runs=runs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The memory that a table takes on its way through an engine to its end: files, files by key, or batches.

    python -m benchmarks.memory.sinks --scale 1 --ranks 1,2 --rounds 3

Each end is reached by Polars' streaming engine and by ranks in turns, in processes of their own. Their anonymous and
shared memory is sampled every 5 ms. Several ranks have one thread each and are compared with Polars with one thread on
their part of the rows. The exit status is 1 if the rows that arrive are not those of the table, or if a rank takes
more than ``--most`` times Polars' memory (medians).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.environment import write_report
from benchmarks.memory.results import run_ranks, tell
from benchmarks.memory.sampler import ANONYMOUS, sampled
from benchmarks.pdsh.data import default_directory, ensure

MIB = 1 << 20


def _sink_parquet(rows: pl.LazyFrame, folder: Path, engine: Any) -> int | None:
    rows.sink_parquet(folder / "rows.parquet" if engine == "streaming" else folder / "rows", engine=engine)
    return None


def _partition_by(rows: pl.LazyFrame, folder: Path, engine: Any) -> int | None:
    rows.sink_parquet(pl.PartitionBy(folder / "rows", key="l_shipmode"), engine=engine, mkdir=True)
    return None


def _collect_batches(rows: pl.LazyFrame, folder: Path, engine: Any) -> int | None:
    del folder
    return sum(batch.height for batch in rows.collect_batches(engine=engine))


def _sink_batches(rows: pl.LazyFrame, folder: Path, engine: Any) -> int | None:
    del folder
    count = 0

    def take(batch: pl.DataFrame) -> None:
        nonlocal count
        count += batch.height

    rows.sink_batches(take, engine=engine)
    return count


ENDS: dict[str, Callable[[pl.LazyFrame, Path, Any], int | None]] = {
    "sink_parquet": _sink_parquet,
    "PartitionBy": _partition_by,
    "collect_batches": _collect_batches,
    "sink_batches": _sink_batches,
}
"""Each function consumes rows and returns how many arrived in this process; None if it has written them to files."""


def measure(end: str, table: Path, folder: Path, part: str | None) -> None:
    """Take the table to an end, by ranks or, if ``part`` says which, a part of it by Polars; tell what that took."""
    rows = pl.scan_parquet(table)
    if part is not None:
        number, parts = map(int, part.split("/"))
        height = rows.select(pl.len()).collect().item()
        first, last = height * number // parts, height * (number + 1) // parts
        _report(end, rows if parts == 1 else rows.slice(first, last - first), folder, "streaming", number)
        return
    from cudf_polars.engine.spmd import SPMDEngine

    with SPMDEngine() as engine:
        _report(end, rows, folder, engine, engine.rank)


def _report(end: str, rows: pl.LazyFrame, folder: Path, engine: Any, rank: int) -> None:
    with sampled(os.getpid(), ANONYMOUS) as peak:
        start = time.perf_counter()
        arrived = ENDS[end](rows, folder, engine)
        seconds = time.perf_counter() - start
    tell(folder, {"rank": rank, "seconds": seconds, "peak_bytes": peak.nbytes, "rows": arrived})


def run_once(end: str, table: Path, folder: Path, ranks: int, part: str | None) -> list[dict[str, Any]]:
    """Run :func:`measure` in new processes; return what each says.

    Raises
    ------
    RuntimeError
        If one fails, with the end of what it printed, or if other rows arrive than the table has.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.memory.sinks", "--measure", end, f"--table={table}"]
    command += [f"--folder={folder}", *([f"--part={part}"] if part else [])]
    environment = dict(os.environ)
    if part is not None and not part.endswith("/1"):
        environment["POLARS_MAX_THREADS"] = "1"
    who = f"{end} by Polars, part {part}" if part else f"{end} on {ranks} ranks"
    said = run_ranks(command, ranks, folder, who, environment)
    if part is None:
        expected = pl.scan_parquet(table).select(pl.len()).collect().item()
        counts = [result["rows"] for result in said]
        files = pl.scan_parquet(folder / "**/*.parquet") if None in counts else None
        arrived = sum(counts) if files is None else files.select(pl.len()).collect().item()
        if arrived != expected:
            raise RuntimeError(f"{who}: {arrived} rows arrived, not {expected}")
    return said


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory.sinks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=1, help="of PDS-H, whose lineitem is taken")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--ends", default=",".join(ENDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.1, help="times Polars' memory that a rank may take")
    parser.add_argument("--folder", type=Path, help="where files go")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    parser.add_argument("--measure", choices=list(ENDS), help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.table, given.folder, given.part)
        return 0
    ensure(given.scale, None)
    table = default_directory(given.scale) / "lineitem.parquet"
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="riverrun-memory-", dir=given.folder) as name:
        for end in given.ends.split(","):
            for ranks in map(int, given.ranks.split(",")):
                ours: list[int] = []
                polars: list[int] = []
                for _ in range(given.rounds):
                    said = run_once(end, table, Path(name) / "out", ranks, None)
                    ours.append(max(result["peak_bytes"] for result in said))
                    said = run_once(end, table, Path(name) / "out", 1, f"0/{ranks}")
                    polars.append(said[0]["peak_bytes"])
                ratio = statistics.median(ours) / statistics.median(polars)
                print(
                    f"{end:15} {ranks} rank(s): {statistics.median(ours) / MIB:4.0f} MiB a rank,"
                    f" Polars {statistics.median(polars) / MIB:4.0f} MiB: {ratio:.2f}",
                    flush=True,
                )
                run = {
                    "end": end,
                    "ranks": ranks,
                    "largest_rank_bytes": ours,
                    "polars_bytes": polars,
                    "ratio": ratio,
                }
                runs.append(run)
    if given.output:
        write_report(given.output, scale_factor=given.scale, most_ratio=given.most, runs=runs)
    return 1 if any(run["ratio"] > given.most for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())

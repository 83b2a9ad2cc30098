"""One rank: reads each file once and counts what it reads: ``python -m benchmarks.large_files.worker FOLDER``."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

__all__ = ["FORMATS", "totals"]

FORMATS = ("csv", "ndjson", "ipc")


def totals(folder: Path, kind: str) -> pl.LazyFrame:
    """Return a query that needs every row and column of a file."""
    rows = getattr(pl, f"scan_{kind}")(folder / f"rows.{kind}")
    i, t, f, k = map(pl.col, ("i", "t", "f", "k"))
    query: pl.LazyFrame = rows.select(
        pl.len(), i.sum(), t.str.len_bytes().sum().alias("bytes"), f.max(), k.max()
    )
    return query


def _asked_for() -> int:
    """Return the bytes that this process has asked the system for, cached or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def _mapped(path: Path) -> int:
    """Return the bytes of a file that are in this process's memory."""
    found, nbytes = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            found = line.endswith(str(path))
        elif found and line.startswith("Rss:"):
            nbytes += int(line.split()[1]) << 10
    return nbytes


@contextmanager
def _counted(path: Path) -> Iterator[list[int]]:
    """Count what this process reads of a file meanwhile."""
    counted, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.002):
            counted[0] = max(counted[0], _mapped(path))

    before = _asked_for()
    sampler = threading.Thread(target=sample)
    if path.suffix == ".ipc":
        sampler.start()
    yield counted
    ended.set()
    if path.suffix == ".ipc":
        sampler.join()
    else:
        counted[0] = _asked_for() - before


def main() -> None:
    """Read each file and print the results as lines of JSON."""
    from cudf_polars.engine.spmd import SPMDEngine

    folder = Path(sys.argv[1])
    warnings.simplefilter("error")
    with SPMDEngine() as engine:
        for kind in FORMATS:
            query = totals(folder, kind)
            start = time.perf_counter()
            with _counted(folder / f"rows.{kind}") as counted:
                answer = query.collect(engine=engine)
            result = {
                "format": kind,
                "rank": engine.rank,
                "seconds": time.perf_counter() - start,
                "bytes_read": counted[0],
                "answer": answer.row(0) if answer.height else None,
            }
            print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

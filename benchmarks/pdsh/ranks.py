"""Runs queries on N ranks: starts ``rrun``, or a client of Dask or Ray; and starts it again after one that failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.pdsh.data import tool
from benchmarks.pdsh.queries import QUERIES, Tables

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60.0
"""Added to each run's time limit for starting Python and the engine."""

ENGINES = ("spmd", "dask", "ray")

STARTED = "started"
"""The file that a worker makes when its engine has started."""


@dataclass
class Run:
    """What one number of ranks gave.

    Attributes
    ----------
    nranks
        The number of ranks.
    out
        Where the workers wrote their answers.
    records
        By query: what ``worker.Record`` describes.
    errors
        By query that failed: why.
    engine
        Who starts the ranks.
    """

    nranks: int
    out: Path
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    engine: str = "spmd"

    @property
    def label(self) -> str:
        """What the run is called: "2", or "dask 2"."""
        return str(self.nranks) if self.engine == "spmd" else f"{self.engine} {self.nranks}"

    def extend(self, later: Run) -> None:
        """Add the times and failures of a later run of the same kind."""
        self.errors.update(later.errors)
        for query, record in later.records.items():
            if query in self.records:
                self.records[query]["ours"] += record["ours"]
                self.records[query]["polars"] += record["polars"]
        for query in self.errors:
            self.records.pop(query, None)

    def answer(self, query: int) -> pl.DataFrame:
        """Read the engine's answer to a query that succeeded."""
        return pl.read_parquet(self.out / f"q{query}.parquet")

    def polars_answer(self, query: int) -> pl.DataFrame | None:
        """Read Polars' own answer, if this run asked Polars too."""
        path = self.out / f"q{query}-polars.parquet"
        return pl.read_parquet(path) if path.is_file() else None


def run_on_ranks(
    nranks: int,
    queries: Sequence[int],
    tables: Tables,
    *,
    iterations: int,
    query_seconds: float,
    out: Path,
    engine: str = "spmd",
) -> Run:
    """Run queries on ``nranks`` processes; on one, Polars runs beside the engine.

    A failed query ends its processes, because after a failure the ranks no longer agree on where
    they are; new ones run the queries after it. Where the engine does not even start, all queries
    fail with that.

    Parameters
    ----------
    nranks
        The number of processes.
    queries
        The numbers of the queries.
    tables
        The tables.
    iterations
        Timed iterations of each query.
    query_seconds
        The time limit of a run is this many seconds for each of its queries.
    out
        An empty directory for the workers' files.
    engine
        One of :data:`ENGINES`.
    """
    run = Run(nranks, out, engine=engine)
    left = list(queries)
    while left:
        (out / STARTED).unlink(missing_ok=True)
        failure = _launch(run, left, tables, iterations=iterations, limit=query_seconds)
        while left and (record := out / f"q{left[0]}.json").is_file():
            run.records[left.pop(0)] = json.loads(record.read_text())
        if left and not (out / STARTED).exists():
            run.errors.update(dict.fromkeys(left, f"the engine did not start: {failure}"))
            break
        if left:
            number = left.pop(0)
            run.errors[number] = _why(out, number) or failure or "its result is missing"
    return run


def _launch(run: Run, queries: Sequence[int], tables: Tables, *, iterations: int, limit: float) -> str | None:
    """Run one set of processes to its end; says what went wrong, if anything did."""
    launcher = [tool("rrun"), "-n", str(run.nranks)] if run.engine == "spmd" else []
    command = [
        *launcher,
        *(sys.executable, "-m", "benchmarks.pdsh.worker"),
        *("--data", str(tables.directory.resolve())),
        *(("--floats",) if tables.floats else ()),
        *("--queries", ",".join(map(str, queries))),
        *("--iterations", str(iterations)),
        *("--out", str(run.out)),
    ]
    if run.engine != "spmd":
        command += ["--engine", run.engine, "--ranks", str(run.nranks)]
    elif run.nranks == 1:
        command.append("--with-polars")
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    log = run.out / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        seconds = _START_SECONDS + limit * len(queries)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"not finished after {seconds:.0f} s"
        except BaseException:
            _end(process)
            raise
    if status == 0:
        return None
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return f"{Path(command[0]).name} ended with status {status}:\n{tail}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End rrun, which ends its ranks."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _why(out: Path, query: int) -> str | None:
    """Read the error of the first rank that left one."""
    for path in sorted(out.glob(f"{QUERIES[query].name}-error-*.txt")):
        rank = path.stem.rsplit("-", 1)[-1]
        return f"rank {rank}: {path.read_text().strip()}"
    return None

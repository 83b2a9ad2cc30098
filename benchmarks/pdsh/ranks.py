"""Runs queries by Polars and on N ranks, in turns: one iteration of a query by one, then by the next.

What else runs on the machine, and how fast it is at the moment, meets all of them alike.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.pdsh.data import tool
from benchmarks.pdsh.queries import Tables
from benchmarks.pdsh.turns import Job, JobFailed, JobNotStarted, Message

_ROOT = Path(__file__).resolve().parents[2]

ENGINES = ("spmd", "dask", "ray")

POLARS = "polars"
"""Stands where the name of an engine does, for Polars' own streaming engine."""

WARM_UP_RUNS = 1
"""Runs of a query before the timed ones. They give the answer, and leave files in the page cache and footers known."""


@dataclass
class Run:
    """What one number of ranks gave, or Polars.

    Attributes
    ----------
    nranks
        The number of ranks.
    out
        An empty directory, where the workers write their answers.
    records
        By query that succeeded: the ``seconds`` of each timed iteration (the slowest rank's), the ``rows`` of the
        answer, and as ``fallbacks`` what the engine could not distribute, as its warnings say.
    errors
        By query that failed: why.
    engine
        Who starts the ranks: one of :data:`ENGINES`, or :data:`POLARS`.
    threads
        How many threads Polars has, in a run of Polars that has started.
    """

    nranks: int
    out: Path
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    engine: str = "spmd"
    threads: int | None = None

    @property
    def label(self) -> str:
        """What the run is called: "2", "dask 2" or "Polars streaming"."""
        if self.engine == POLARS:
            return "Polars streaming"
        return str(self.nranks) if self.engine == "spmd" else f"{self.engine} {self.nranks}"

    @property
    def rests(self) -> bool:
        """Whether its processes use no CPU while they wait; services of Dask and Ray always have something to do."""
        return self.engine in ("spmd", POLARS)

    def add(self, query: int, answers: Sequence[Message], *, timed: bool) -> None:
        """Take in what the ranks say of one run of a query."""
        if timed:
            self.records[query]["seconds"].append(max(answer["seconds"] for answer in answers))
        else:
            self.records[query] = {"seconds": [], **answers[0]}

    def fail(self, query: int, why: str) -> None:
        """Note that a query failed; what it gave before does not count."""
        self.records.pop(query, None)
        self.errors[query] = why

    def extend(self, later: Run) -> None:
        """Add the times and failures of a later run of the same kind."""
        for query, record in later.records.items():
            if query in self.records:
                self.records[query]["seconds"] += record["seconds"]
        for query, why in later.errors.items():
            self.fail(query, why)

    def answer(self, query: int) -> pl.DataFrame:
        """Read the answer to a query that succeeded."""
        return pl.read_parquet(self.out / f"q{query}.parquet")


def run_in_turns(
    runs: Sequence[Run], queries: Sequence[int], tables: Tables, *, iterations: int, query_seconds: float
) -> None:
    """Let runs take turns, query by query and iteration by iteration, and fill them with what they find.

    The processes of all runs are there at once; those of one work, the others wait. Each iteration another run begins,
    so that none always finds the caches as the same one left them. Each query is run by all without a measurement
    first.

    A failed query ends the processes of its run, because after a failure the ranks no longer agree on where they are;
    new ones run the queries after it. Where the engine does not even start, all queries that are left fail with that.

    Parameters
    ----------
    runs
        Who takes turns.
    queries
        The numbers of the queries.
    tables
        The tables.
    iterations
        Timed iterations of each query.
    query_seconds
        The time limit of one iteration of a query.
    """
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(_job(run, tables)) for run in runs]
        members = list(zip(runs, jobs, strict=True))
        for i, query in enumerate(queries):
            for iteration in range(WARM_UP_RUNS + iterations):
                first = iteration % len(members)
                for run, job in members[first:] + members[:first]:
                    if query in run.errors:
                        continue
                    timed = iteration >= WARM_UP_RUNS
                    try:
                        if not job.runs:
                            job.start()
                            run.threads = job.about[0].get("threads")
                        run.add(query, job.turn(query, timed=timed, seconds=query_seconds), timed=timed)
                    except JobNotStarted as error:
                        for left in queries[i:]:
                            run.fail(left, f"the engine did not start: {error}")
                    except JobFailed as error:
                        run.fail(query, str(error))


def _job(run: Run, tables: Tables) -> Job:
    """Make the job of a run, which starts ``rrun``, a client of Dask or Ray, or Polars alone."""
    module = "benchmarks.pdsh.polars_worker" if run.engine == POLARS else "benchmarks.pdsh.worker"
    command = [
        *([tool("rrun"), "-n", str(run.nranks)] if run.engine == "spmd" else []),
        *(sys.executable, "-m", module),
        *("--data", str(tables.directory.resolve())),
        *(("--floats",) if tables.floats else ()),
        *("--out", str(run.out)),
    ]
    if run.engine in ENGINES and run.engine != "spmd":
        command += ["--engine", run.engine, "--ranks", str(run.nranks)]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    if run.engine == POLARS:
        environment.pop("POLARS_MAX_THREADS", None)  # it is for the ranks; Polars has all cores
    return Job(
        command,
        run.nranks if run.engine == "spmd" else 1,
        environment=environment,
        log=run.out / "log.txt",
    )

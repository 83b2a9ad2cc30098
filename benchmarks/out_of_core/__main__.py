"""Queries over tables that are larger than memory, beside Polars' streaming engine and DuckDB.

    python -m benchmarks.out_of_core --scale 10 --memory 3GiB --ranks 1,2
    python -m benchmarks.out_of_core --scale 30 --memory 3GiB --ranks 1,2 --queries pdsh

Every run is in one memory cgroup around all of its processes. It is cut off after ``--limit`` seconds, and then counts
as that long. Each engine writes Parquet, with the same compression. The answers of all engines are compared: in the
first round by their number of rows and by sums over columns and rows (``worker.summary``), in later ones by the number
of rows. The exit status is 1 if an answer differs or a run of Riverrun does not end.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.environment import write_report
from benchmarks.out_of_core.memory_group import MemoryGroup, NoMemoryGroup
from benchmarks.out_of_core.queries import PDSH, SIX
from benchmarks.pdsh.data import default_directory, ensure, tool

_UNITS = {"MiB": 20, "GiB": 30}


@dataclass
class Run:
    """What one run took.

    Attributes
    ----------
    seconds
        Of the query alone; the limit if it did not end.
    peak_bytes
        The most that was seen of anonymous and shared memory, all processes together.
    """

    query: str
    engine: str
    ranks: int
    ended: str
    seconds: float
    peak_bytes: int
    summary: list[object] | None = None
    explain: str = ""


def parse_bytes(text: str) -> int:
    """Read ``3GiB`` or ``500MiB``."""
    for unit, bits in _UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * (1 << bits))
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB or GiB")


def run_once(
    query: str, engine: str, ranks: int, data: Path, memory: int, limit: float, folder: Path, *, in_full: bool
) -> Run:
    """Run a query once, in a group of its own.

    Parameters
    ----------
    in_full
        Whether the whole answer is read to compare it, which takes as long as a run, or only its number of rows.
    """
    output, spill, told = folder / "output", folder / "spill", folder / "told"
    for path in (output, spill, told):
        shutil.rmtree(path, ignore_errors=True)
    for path in (spill, told):
        path.mkdir(parents=True)
    worker = [sys.executable, "-m", "benchmarks.out_of_core.worker"]
    paths = (f"--data={data}", f"--output={output}", f"--spill={spill}", f"--told={told}")
    given = [query, *paths, f"--memory={memory}"]
    command = [*worker, engine, *given]
    if engine == "riverrun" and ranks > 1:
        command = [tool("rrun"), "-n", str(ranks), *command]
    peak = 0
    with MemoryGroup(memory) as group, tempfile.TemporaryFile("w+") as said:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, preexec_fn=group.enter)
        while process.poll() is None and time.monotonic() - start < limit:
            peak = max(peak, group.resident())
            time.sleep(0.02)
        is_late = process.poll() is None
        was_killed = group.was_killed()
        group.close()
        process.wait()
        said.seek(0)
        lines = said.read().splitlines()
    results = [json.loads(path.read_text()) for path in told.iterdir()]
    run = Run(query, engine, ranks, "", limit, peak)
    if is_late:
        run.ended = "cut off"
    elif was_killed or process.returncode or len(results) < ranks:
        run.ended = "killed for want of memory" if was_killed else (lines or ["?"])[-1][:200]
    else:
        run.ended = "well"
        run.seconds = max(result["seconds"] for result in results)
        run.explain = next((r["explain"] for r in results if r.get("explain")), "")
        step = "summary" if in_full else "count"
        subprocess.run([*worker, step, *given], check=True, capture_output=True)
        run.summary = json.loads((told / "summary.json").read_text())["summary"]
    return run


def agree(first: list[object], second: list[object]) -> bool:
    """Whether two summaries are equal, but for the last digits of floats; one may be of the number of rows alone."""
    return (len(first) == len(second) or 1 in (len(first), len(second))) and all(
        a == b if isinstance(a, int) and isinstance(b, int) else math.isclose(a, b, rel_tol=1e-6)  # type: ignore[arg-type]
        for a, b in zip(first, second, strict=False)
    )


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.out_of_core",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", type=Path, help="default: data/pdsh-sf<scale>, made if it is not there")
    parser.add_argument("--memory", type=parse_bytes, default=3 << 30, help="of all processes of a run")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--engines", default="riverrun,polars,duckdb")
    parser.add_argument("--queries", default=",".join(SIX), help="their names; pdsh: the 22 of PDS-H")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900, help="seconds after which a run is cut off")
    parser.add_argument(
        "--rows-only",
        action="store_true",
        help="compare answers by their number of rows, also in the first round",
    )
    parser.add_argument(
        "--folder", type=Path, help="where outputs and spill files go; default: the folder for such"
    )
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    queries = list(PDSH) if given.queries == "pdsh" else given.queries.split(",")
    ensure(given.scale, given.data)
    data = default_directory(given.scale) if given.data is None else given.data
    ranks = [int(n) for n in given.ranks.split(",")]
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="riverrun-out-of-core-", dir=given.folder) as name:
        for query in queries:
            for number in range(given.rounds):
                for engine in given.engines.split(","):
                    for n in ranks if engine == "riverrun" else [1]:
                        try:
                            run = run_once(
                                query,
                                engine,
                                n,
                                data,
                                given.memory,
                                given.limit,
                                Path(name),
                                in_full=number == 0 and not given.rows_only,
                            )
                        except NoMemoryGroup as error:
                            print(f"skipped: {error}")
                            return 0
                        runs.append(run)
                        print(
                            f"{query:9} {engine:8} {n} rank(s): {run.seconds:6.1f} s,"
                            f" {run.peak_bytes / (1 << 20):5.0f} MiB, {run.ended}",
                            flush=True,
                        )
                        if given.output is not None:
                            write_report(
                                given.output,
                                scale_factor=given.scale,
                                memory_bytes=given.memory,
                                limit_seconds=given.limit,
                                runs=[asdict(each) for each in runs],
                            )
    status = 0
    for query in queries:
        answers = [run for run in runs if run.query == query and run.summary is not None]
        for run in answers[1:]:
            if not agree(answers[0].summary or [], run.summary or []):
                print(f"{query}: {run.engine} on {run.ranks} differs: {run.summary}, {answers[0].summary}")
                status = 1
    if any(run.engine == "riverrun" and run.ended != "well" for run in runs):
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

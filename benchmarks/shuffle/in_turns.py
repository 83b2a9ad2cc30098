"""Two builds of the library in turns: shuffles of tables, on the CPU or on GPUs, and the costs of single steps.

    python -m benchmarks.shuffle.in_turns BEFORE AFTER --cases table,costs --rounds 5 --output results.json

BEFORE and AFTER are folders that CMake has built with ``RAPIDSMPF_BUILD_BENCHMARKS=ON``. Each round runs the programs
of BEFORE, of AFTER, and of BEFORE again, first in another order than the round before. ``ratio`` is the median of
AFTER by the median of both runs of BEFORE: less than 1 is faster. ``same_build`` is how far BEFORE is from itself: the
larger of its two medians by the smaller one, and ``same_build_in_a_round`` the farthest of any round. The standard
library of Python is all that this needs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.environment import write_report

# Without streaming, whose programs are not the same ones any more.
_PROGRAMS = (
    "core_crc32c",
    "core_statistics",
    "memory_reserve",
    "memory_resource_adaptor",
    "memory_spill",
    "table_partition",
)
_TURNS = ("before", "after", "before_again")
_CELL = ("case", "ranks", "chunk_bytes", "chunks_per_rank", "partitions_per_rank")


def _run(command: list[str], *, on_cpu: bool) -> None:
    environment = dict(os.environ)
    if on_cpu:
        environment["RAPIDSMPF_DEVICE"] = "cpu"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _shuffles(build: Path, case: str, given: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Run the shuffles of a case; yield what is measured of each cell, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "cells.jsonl"
        arguments = [f"--output={found}", f"--repeats={given.repeats}"]
        if case == "table":
            arguments += [f"--chunks={given.chunks}", f"--partitions={given.partitions}"]
            arguments += [f"--bytes={given.bytes}", f"--pieces={given.pieces}"]
        rrun = next(path for path in build.rglob("rrun") if path.is_file())
        program = build / "cpp" / "ranks" / "bench_shuffle"
        words = [word for option in arguments for word in option.split("=", 1)]
        _run([str(rrun), "-n", str(given.ranks), str(program), case, *words], on_cpu=case == "table")
        for line in found.read_text().splitlines():
            cell = json.loads(line)
            name = " ".join(f"{key}={cell[key]}" for key in _CELL if key in cell)
            for key, values in cell.items():
                if key.endswith("_seconds") and not key.startswith(("memcpy", "device_copy")):
                    yield f"{name} {key.removesuffix('_seconds')}", statistics.median(values)


def _costs(build: Path, given: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Run the programs that measure one step each; yield nanoseconds of processor time."""
    for program in _PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "costs.json"
            options = [f"--benchmark_repetitions={given.repeats}", "--benchmark_min_time=0.02"]
            _run([str(build / "cpp" / f"bench_{program}"), *options, f"--benchmark_out={found}"], on_cpu=True)
            times: dict[str, list[float]] = defaultdict(list)
            for each in json.loads(found.read_text())["benchmarks"]:
                if each["run_type"] == "iteration" and "cpu_time" in each:
                    times[each["run_name"]].append(each["cpu_time"])
            for name, values in times.items():
                yield f"{program} {name}", statistics.median(values)


def compare(values: dict[str, list[float]]) -> dict[str, Any]:
    """Say how AFTER stands to BEFORE, from the values of all rounds."""
    before, after, again = (values[turn] for turn in _TURNS)
    medians = statistics.median(before), statistics.median(again)
    return {
        "ratio": round(statistics.median(after) / statistics.median(before + again), 3),
        "same_build": round(max(medians) / min(medians), 3),
        "same_build_in_a_round": round(
            max(max(pair) / min(pair) for pair in zip(before, again, strict=True)), 3
        ),
        **values,
    }


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shuffle.in_turns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--cases", default="table,costs", help="of table, device_table, costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=3, help="within each run, of which the median is taken"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--chunks", default="64KiB,1MiB,8MiB,64MiB")
    parser.add_argument("--partitions", default="1,10,100")
    parser.add_argument("--bytes", default="256MiB")
    parser.add_argument("--pieces", default="20000")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    builds = {"before": given.before, "after": given.after, "before_again": given.before}
    unit = "seconds of shuffles, nanoseconds of processor time of costs; lists: one value a round"
    record: dict[str, dict[str, dict[str, Any]]] = {}
    for case in given.cases.split(","):
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: {turn: [] for turn in _TURNS})
        for number in range(given.rounds):
            first = number % len(_TURNS)
            for turn in _TURNS[first:] + _TURNS[:first]:
                cells = (
                    _costs(builds[turn], given) if case == "costs" else _shuffles(builds[turn], case, given)
                )
                for name, value in cells:
                    found[name][turn].append(value)
            # What both have: a program may measure more today.
            record[case] = {
                name: compare(values) for name, values in found.items() if all(values[t] for t in _TURNS)
            }
            if given.output is not None:
                write_report(given.output, unit=unit, **record)
            print(f"{case}: round {number + 1} of {given.rounds}", flush=True)
        for name, cell in record[case].items():
            print(f"{name}: {cell['ratio']:.3f}, the same build {cell['same_build']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

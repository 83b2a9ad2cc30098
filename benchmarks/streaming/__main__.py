"""What a message costs from one actor to the next: in C++ beside asio, in Python beside asyncio, and between the two.

    cmake --build build/wheel --target bench_streaming_channel bench_streaming_chain_asio
    python -m benchmarks.streaming --programs build/wheel/cpp

Everything is measured in turns; of each the median of the rounds is reported. The programs need Google Benchmark and
asio (Debian: libbenchmark-dev, libasio-dev); without ``--programs`` only Python is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.environment import write_report
from benchmarks.streaming.python_actors import CASES

_PROGRAMS = {
    "bench_streaming_channel": "actor_chain/[12]/0/",
    "bench_streaming_chain_asio": "asio_chain",
}
"""By program, what of it is run."""


def run_program(program: Path, pattern: str) -> dict[str, float]:
    """Return the nanoseconds of a hop in each benchmark of a program that ``pattern`` finds."""
    command = [str(program), f"--benchmark_filter={pattern}", "--benchmark_format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {each["name"]: each["hop"] * 1e9 for each in json.loads(done.stdout)["benchmarks"]}


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=Path, help="folder of the C++ programs")
    parser.add_argument("--messages", type=int, default=100_000, help="in each run of Python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    measured: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for name, run in CASES.items():
            measured.setdefault(name, []).append(run(given.messages) * 1e9)
        for program, pattern in _PROGRAMS.items() if given.programs else ():
            for name, nanoseconds in run_program(given.programs / program, pattern).items():
                measured.setdefault(name, []).append(nanoseconds)
    medians = {name: statistics.median(values) for name, values in measured.items()}
    for name, values in measured.items():
        print(f"{name:32} {medians[name]:8.0f} ns ({min(values):.0f} to {max(values):.0f})")
    if given.output:
        rounded = {name: [round(value) for value in values] for name, values in measured.items()}
        write_report(given.output, unit="nanoseconds a message", medians=medians, rounds=rounded)
    return 0


if __name__ == "__main__":
    sys.exit(main())

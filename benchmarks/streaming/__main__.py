"""The cost of passing a message between actors, and the gain of more threads, beside asio and asyncio; writes a record.

    cmake --build build/wheel --target bench_streaming_channel bench_streaming_chain_asio
    python -m benchmarks.streaming --programs build/wheel/cpp --output streaming.json

A chain of ten actors passes 1,000,000 messages on, by one thread and by two: in C++, and in C++ with coroutines and
channels of asio. In Python ten `async def` actors do, beside as many tasks with queues of asyncio, and messages go from
C++ to Python and back. Last the chain computes 10 microseconds for each message, by 1, 2, 4 and 8 threads as far as
there are cores.

Everything is measured in turns, so that each has the same share of what else the machine does; of each the median of
the rounds is reported, beside the least and the most. What an atomic addition and a switch between two coroutines of
one thread take is measured in each round, too: all costs go up and down with them when the processor's clock does.
The programs need Google Benchmark and asio (Debian: libbenchmark-dev, libasio-dev). Without ``--programs`` only Python
is measured, with ``--only-programs`` only they are: then Python's standard library and the programs are enough.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.environment import write_report

_HOPS = {
    "bench_streaming_channel": "atomic_increment|task_switch|actor_chain/[12]/0/",
    "bench_streaming_chain_asio": "asio_chain",
}
"""By program, what of it is run for the cost of a hop."""
_WORK = "actor_chain/{}/10000/real_time"
_TARGETS = {"hop_ns": 80.0, "two_threads": 1.1, "speed_up": {"4": 3.5, "8": 6.5}, "there_and_back_ns": 5000.0}
"""The most that a hop may take, by two threads in proportion to one, and the least that threads gain."""


def run_program(program: Path, pattern: str) -> dict[str, float]:
    """Return the nanoseconds of each benchmark of a program that ``pattern`` finds: of a hop, if it has hops."""
    command = [str(program), f"--benchmark_filter={pattern}", "--benchmark_format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if not done.stdout:
        raise SystemExit(
            f"{program} was built without what it is to measure: install libasio-dev and build it again"
        )
    found = json.loads(done.stdout)["benchmarks"]
    return {each["name"]: each["hop"] * 1e9 if "hop" in each else each["cpu_time"] for each in found}


def measure(given: argparse.Namespace) -> dict[str, list[float]]:
    """Return the nanoseconds of everything in each round."""
    cases = {}
    if not given.only_programs:
        from benchmarks.streaming.python_actors import CASES

        cases = CASES
    cores = len(os.sched_getaffinity(0))
    threads = [count for count in (1, 2, 4, 8) if count <= cores]
    measured: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        found = {name: run(given.messages) * 1e9 for name, run in cases.items()}
        if given.programs:
            for program, pattern in _HOPS.items():
                found |= run_program(given.programs / program, pattern)
            for count in threads:
                found |= run_program(given.programs / "bench_streaming_channel", _WORK.format(count))
        for name, nanoseconds in found.items():
            measured.setdefault(name, []).append(nanoseconds)
    return measured


def ratios(rounds: dict[str, list[float]]) -> dict[str, float]:
    """Return how the parts compare: the median of what they do in each round, where both were measured in turn."""
    compared = {
        "two threads to one": ("actor_chain/2/0/real_time", "actor_chain/1/0/real_time"),
        "hop to asio's": ("actor_chain/1/0/real_time", "asio_chain/1/real_time"),
        "hop to asio's, two threads": ("actor_chain/2/0/real_time", "asio_chain/2/real_time"),
        "hop to an atomic addition": ("actor_chain/1/0/real_time", "atomic_increment"),
        "async def hop to asyncio.Queue's": ("async def hop", "asyncio.Queue hop"),
        **{f"speed-up of {count} threads": (_WORK.format(1), _WORK.format(count)) for count in (2, 4, 8)},
    }
    return {
        name: round(statistics.median(a / b for a, b in zip(rounds[one], rounds[other], strict=True)), 3)
        for name, (one, other) in compared.items()
        if one in rounds and other in rounds
    }


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=Path, help="folder of the C++ programs")
    parser.add_argument("--only-programs", action="store_true", help="do not measure Python")
    parser.add_argument("--messages", type=int, default=100_000, help="in each run of Python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    if given.only_programs and not given.programs:
        parser.error("--only-programs needs --programs")
    rounds = measure(given)
    medians = {name: round(statistics.median(values), 1) for name, values in rounds.items()}
    for name, values in rounds.items():
        print(f"{name:34} {medians[name]:9.1f} ns ({min(values):.1f} to {max(values):.1f})")
    compared = ratios(rounds)
    for name, ratio in compared.items():
        print(f"{name:34} {ratio:9.3f}")
    if given.output:
        rounded = {name: [round(value, 1) for value in values] for name, values in rounds.items()}
        write_report(
            given.output,
            unit="nanoseconds a message",
            targets=_TARGETS,
            medians=medians,
            ratios=compared,
            rounds=rounded,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

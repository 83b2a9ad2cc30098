"""Spilling device memory to disk and back, in turns with ``dd`` on the same file system.

    make bench    # builds build/wheel/cpp/bench_memory_spill
    python -m benchmarks.spill --folder /data/spill --mib 2048

Each round runs ``dd`` with direct I/O and blocks of 4 MiB, and our program in a process of its own, one after the
other; the ratio is that of the medians. The processor's share is user and system time of all threads over wall time,
as a share of one core; checksums are part of ours. The exit status is 1 if ``--min-ratio`` or ``--max-cpu`` is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import hardware, write_report

MIB = 1 << 20
SIZES = (1024, 2048, 4096)
DIRECTIONS = {"write": "device_to_disk", "read": "disk_to_device"}


@dataclass(frozen=True)
class Measured:
    """One transfer: bytes a second, and the share of one core that it took."""

    bytes_per_second: float
    cpu_share: float


@dataclass(frozen=True)
class Round:
    """What was measured in turn, by direction (``write``, ``read``)."""

    dd: dict[str, Measured]
    ours: dict[str, Measured]


def run_dd(direction: str, file: Path, mib: int) -> Measured:
    """Copy zeros to ``file``, or ``file`` to nowhere, past the page cache.

    Parameters
    ----------
    direction
        ``write`` or ``read``.
    file
        Written or read; reading needs that it was written before.
    mib
        How much, a multiple of 4 MiB.

    Raises
    ------
    subprocess.CalledProcessError
        If ``dd`` fails, for example because the file system has no direct I/O.
    """
    ends = {
        "write": ["if=/dev/zero", f"of={file}", "oflag=direct"],
        "read": [f"if={file}", "of=/dev/null", "iflag=direct"],
    }[direction]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(["dd", *ends, "bs=4M", f"count={mib // 4}"], check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(mib * MIB / seconds, cpu / seconds)


def read_report(report: dict[str, Any]) -> Measured:
    """Read what our program says of a single transfer (the JSON of Google Benchmark)."""
    (entry,) = report["benchmarks"]
    return Measured(entry["bytes_per_second"], entry["cpu_time"] / entry["real_time"])


def run_ours(program: Path, direction: str, folder: Path, mib: int) -> Measured:
    """Run our program for one direction; raises ``subprocess.CalledProcessError`` if it fails."""
    done = subprocess.run(
        [program, f"--benchmark_filter=^{DIRECTIONS[direction]}/{mib}/", "--benchmark_format=json"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "RAPIDSMPF_SPILL_DIRECTORY": str(folder)},
    )
    return read_report(json.loads(done.stdout))


def run_round(program: Path, folder: Path, mib: int) -> Round:
    """Measure each direction once, ``dd`` and ours in turns."""
    file = folder / "dd"
    dd: dict[str, Measured] = {}
    ours: dict[str, Measured] = {}
    for direction in DIRECTIONS:
        dd[direction] = run_dd(direction, file, mib)
        ours[direction] = run_ours(program, direction, folder, mib)
    file.unlink()
    return Round(dd, ours)


def summarise(rounds: Sequence[Round]) -> dict[str, dict[str, float]]:
    """Give medians and their ratio by direction."""
    summary = {}
    for direction in DIRECTIONS:
        dd = statistics.median(r.dd[direction].bytes_per_second for r in rounds)
        ours = statistics.median(r.ours[direction].bytes_per_second for r in rounds)
        summary[direction] = {
            "dd_bytes_per_second": dd,
            "our_bytes_per_second": ours,
            "ratio": ours / dd,
            "dd_cpu_share": statistics.median(r.dd[direction].cpu_share for r in rounds),
            "our_cpu_share": statistics.median(r.ours[direction].cpu_share for r in rounds),
        }
    return summary


def render(summary: dict[str, dict[str, float]]) -> str:
    """Write the summary as a table."""
    lines = ["direction |  dd GB/s | ours GB/s | ratio | dd of a core | ours of a core"]
    lines.extend(
        f"{direction:>9} | {r['dd_bytes_per_second'] / 1e9:8.2f} | {r['our_bytes_per_second'] / 1e9:9.2f} | "
        f"{r['ratio']:5.2f} | {r['dd_cpu_share']:12.0%} | {r['our_cpu_share']:14.0%}"
        for direction, r in summary.items()
    )
    return "\n".join(lines)


def missed(summary: dict[str, dict[str, float]], min_ratio: float, max_cpu: float) -> list[str]:
    """List the bounds that the medians miss."""
    found = []
    for direction, r in summary.items():
        if r["ratio"] < min_ratio:
            found.append(f"{direction}: {r['ratio']:.2f} of dd, less than {min_ratio:g}")
        if r["our_cpu_share"] > max_cpu:
            found.append(f"{direction}: {r['our_cpu_share']:.0%} of a core, more than {max_cpu:.0%}")
    return found


def main() -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spill",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--program", type=Path, default=Path("build/wheel/cpp/bench_memory_spill"))
    parser.add_argument("--folder", type=Path, help="where to spill (default: a new one in TMPDIR)")
    parser.add_argument("--mib", type=int, default=2048, choices=SIZES, help="how much (default 2048)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--min-ratio", type=float, default=0.0, help="of dd's speed (default: any)")
    parser.add_argument("--max-cpu", type=float, default=float("inf"), help="of a core (default: any)")
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not arguments.program.exists():
        parser.error(f"{arguments.program} is not there: run `make bench`, or name it with --program")

    with tempfile.TemporaryDirectory(prefix="spill-", dir=arguments.folder) as scratch:
        folder = Path(scratch)
        rounds = [run_round(arguments.program, folder, arguments.mib) for _ in range(arguments.rounds)]
    summary = summarise(rounds)
    machine = hardware()
    print(f"{arguments.mib} MiB, {arguments.rounds} rounds: {machine['processor']}, {machine['cores']} cores")
    print(render(summary))
    if arguments.output is not None:
        write_report(
            arguments.output,
            mib=arguments.mib,
            summary=summary,
            rounds=[asdict(r) for r in rounds],
        )
    problems = missed(summary, arguments.min_ratio, arguments.max_cpu)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

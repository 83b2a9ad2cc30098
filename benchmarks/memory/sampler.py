"""Samples what another process holds: ``python -m benchmarks.memory.sampler PID`` says the most when its input ends."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ANONYMOUS", "RESIDENT", "Peak", "held", "sampled"]

INTERVAL_S = 0.005
RESIDENT = ("VmRSS",)
"""All pages of a process that are in memory, those of files among them."""
ANONYMOUS = ("RssAnon", "RssShmem")
"""The pages that only the process keeps in memory: the kernel may drop those of files."""


def held(pid: int, kinds: tuple[str, ...]) -> int:
    """Return the bytes of a process, of these kinds of ``/proc/PID/status``."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line and line[0].removesuffix(":") in kinds)


class Peak:
    """The most that was sampled, in bytes; known when sampling has ended."""

    nbytes = 0


@contextlib.contextmanager
def sampled(pid: int, kinds: tuple[str, ...]) -> Iterator[Peak]:
    """Sample a process from another one, so that Python's lock delays nothing, until the end of the ``with`` block."""
    peak = Peak()
    sampler = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory.sampler", str(pid), *kinds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield peak
    finally:
        most, _ = sampler.communicate()
    peak.nbytes = int(most)


def main() -> None:
    """Sample until standard input ends."""
    pid, kinds, most = int(sys.argv[1]), tuple(sys.argv[2:]), 0
    # The process may end first.
    with contextlib.suppress(OSError):
        while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            most = max(most, held(pid, kinds))
    print(most, flush=True)


if __name__ == "__main__":
    main()

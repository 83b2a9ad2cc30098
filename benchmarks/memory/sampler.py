"""Samples what another process holds: ``python -m benchmarks.memory.sampler PID`` says the most when its input ends."""

from __future__ import annotations

import select
import sys
from pathlib import Path

INTERVAL_S = 0.005


def resident(pid: int) -> int:
    """Return the bytes of a process that are resident (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Sample until standard input ends."""
    pid, most = int(sys.argv[1]), 0
    try:
        while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            most = max(most, resident(pid))
    except OSError:
        pass  # the process has ended
    print(most, flush=True)


if __name__ == "__main__":
    main()

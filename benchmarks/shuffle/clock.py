"""Wall and processor time of something that all ranks do at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Gather = Callable[[tuple[float, float]], list[tuple[float, float]]]
"""Gives every rank the pairs of all of them; a barrier, too."""


@dataclass
class Series:
    """Runs: seconds until the slowest rank was done, processor seconds of all threads of all ranks."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def fields(self, name: str) -> dict[str, list[float]]:
        """Give the fields of a record, as the C++ program writes them."""
        return {f"{name}_seconds": self.seconds, f"{name}_cpu_seconds": self.cpu_seconds}


def measure(series: Series | None, gather: Gather, body: Callable[[], None]) -> None:
    """Run ``body`` on all ranks at once and add what it took to ``series``; None: only to warm up."""
    gather((0.0, 0.0))
    start, cpu = time.perf_counter(), time.process_time()
    body()
    seconds = time.perf_counter() - start
    gather((0.0, 0.0))  # what this rank still sends is its work, too
    taken = gather((seconds, time.process_time() - cpu))
    if series is not None:
        series.seconds.append(max(s for s, _ in taken))
        series.cpu_seconds.append(sum(c for _, c in taken))


class Memcpy:
    """Copies ``size`` bytes from memory to memory, both warm: what the others are measured by."""

    def __init__(self, size: int) -> None:
        self._from = np.ones(size // 8, np.uint64)
        self._to = np.zeros(size // 8, np.uint64)

    def __call__(self) -> None:
        np.copyto(self._to, self._from)

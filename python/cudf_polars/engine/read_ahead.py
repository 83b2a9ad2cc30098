"""How far Polars reads ahead in files: less, where a rank has little memory.

Polars prefetches row groups of Parquet files, and record batches of IPC files, by their number. Those that wait for
the reader of the scan then take as much memory as a rank with a small limit has altogether: of lineitem at scale
factor 1 (Snappy), a scan on two threads whose reader is slow holds 200 to 300 MiB, and 50 to 80 with a budget of 8 MiB.
Polars takes its budgets from the environment, each time that a scan begins.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LITTLE_MEMORY", "VARIABLES", "read_ahead_within"]

VARIABLES = ("POLARS_ROW_GROUP_PREFETCH_KBYTES_BUDGET", "POLARS_RECORD_BATCH_PREFETCH_KBYTES_BUDGET")
"""What Polars may hold of the bytes of a file, in KiB, for each scan."""
LITTLE_MEMORY = 1 << 30
"""A rank with at least so many bytes has room for what Polars prefetches by itself."""
_MEMORY_OF_SCAN = 32
"""The part of a rank's memory that a scan may prefetch."""

_lock = threading.Lock()
_budgets: Counter[int] = Counter()
"""Those of the ranks of this process, of which the least is in force."""
_set: set[str] = set()
"""The variables that are set here; those of the user stay."""


@contextmanager
def read_ahead_within(memory: int) -> Iterator[None]:
    """Have scans of this process prefetch little, if ``memory`` is little, unless the environment says how much."""
    if memory >= LITTLE_MEMORY:
        yield
        return
    budget = max(1, memory // _MEMORY_OF_SCAN >> 10)
    with _lock:
        _budgets[budget] += 1
        _set.update(name for name in VARIABLES if name not in os.environ)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _budgets[budget] -= 1
            _apply()


def _apply() -> None:
    least = min((budget for budget, ranks in _budgets.items() if ranks), default=None)
    for name in tuple(_set):
        if least is not None:
            os.environ[name] = str(least)
        else:
            os.environ.pop(name, None)
            _set.discard(name)

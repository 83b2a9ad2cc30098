"""How far Polars reads ahead in files: as far as its threads are kept busy, and less where a rank has little memory.

Polars prefetches row groups of Parquet files, and record batches of IPC files, by their number. Those that wait for
the reader of the scan take memory: of lineitem at scale factor 1 (Snappy), a scan on two threads whose reader is slow
holds 200 to 300 MiB, and 50 to 80 with a budget of 8 MiB. Files of a disk are read as fast, cold ones and those with
row groups of a million rows, too; from a store, many requests have to be on their way.

Polars takes its budgets from the environment, each time that a scan begins.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["VARIABLES", "PrefetchBudget", "prefetch_within", "stores_may_be_read"]

VARIABLES = ("POLARS_ROW_GROUP_PREFETCH_KBYTES_BUDGET", "POLARS_RECORD_BATCH_PREFETCH_KBYTES_BUDGET")
"""What Polars may hold of the bytes of a file, in KiB, for each scan."""
_LITTLE_MEMORY = 1 << 30
"""A rank with at least so many bytes has room for what Polars prefetches of stores."""
_MEMORY_OF_SCAN = 32
"""The part of a rank's memory that a scan may prefetch, if that is little."""
_BYTES_OF_THREAD = 8 << 20
"""Bytes that a scan may prefetch, per thread of the rank."""


@dataclass(frozen=True)
class PrefetchBudget:
    """What a scan of a rank may prefetch.

    Attributes
    ----------
    nbytes
        Bytes of a file.
    of_stores
        Whether that is so for files of stores, too.
    """

    nbytes: int
    of_stores: bool

    @staticmethod
    def of_rank(memory: int, threads: int) -> PrefetchBudget:
        """Return the budget of a rank with so much memory and so many threads."""
        own = threads * _BYTES_OF_THREAD
        if memory < _LITTLE_MEMORY:
            return PrefetchBudget(min(own, memory // _MEMORY_OF_SCAN), of_stores=True)
        return PrefetchBudget(own, of_stores=False)


_lock = threading.RLock()  # the garbage collector may close a rank while its thread has the lock
_budgets: Counter[PrefetchBudget] = Counter()
"""Those of the ranks of this process, of which the least is in force."""
_set: set[str] = set()
"""The variables that are set here; those of the user stay."""
_stores_read = False


@contextmanager
def prefetch_within(budget: PrefetchBudget) -> Iterator[None]:
    """Have scans of this process keep within a budget, unless the environment has one."""
    with _lock:
        _budgets[budget] += 1
        _apply()
    try:
        yield
    finally:
        with _lock:
            _budgets[budget] -= 1
            _apply()


def stores_may_be_read() -> None:
    """Drop the budgets that are for local files only, because a query of this process may read from an object store."""
    global _stores_read
    with _lock:
        _stores_read = True
        _apply()


def _apply() -> None:
    budgets = [budget for budget, ranks in _budgets.items() if ranks]
    least = min((b.nbytes for b in budgets if b.of_stores or not _stores_read), default=None)
    for name in VARIABLES:
        if name in os.environ and name not in _set:
            continue  # the user's
        if least is None:
            os.environ.pop(name, None)
            _set.discard(name)
        else:
            os.environ[name] = str(max(1, least >> 10))
            _set.add(name)

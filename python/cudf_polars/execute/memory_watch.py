"""Ends a query that takes more memory than there is, with an error, before the kernel ends its process without one."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from rapidsmpf.error import OutOfMemory

from cudf_polars.execute.host_memory import HostMemory

__all__ = ["MemoryWatch", "Needs", "Turn"]

_SOONEST, _LATEST = 0.02, 0.25
"""Seconds between two looks."""
_BYTES_A_SECOND = 4 << 30
"""Memory is not filled faster, so that it is looked again before it is full."""
_NEAR, _NEAR_AT_MOST = 0.08, 512 << 20
"""With less than that free, of all memory and in bytes, readers of rows take turns."""
_END, _END_AT_MOST = 0.03, 128 << 20
"""With less than that free, they wait for memory."""
_STEP, _STEP_AT_MOST = 4, 1 / 4
"""A step may take so many times the bytes of its rows: unpacked, as it gives them, and copied for the answer. It is not
expected to take more of all memory than that: partitions are small, and ranks may be on several machines.
"""
_PATIENCE_SECONDS = 2.0
"""So long: what allocators have freed stays with the process for a second."""
_TURN_SECONDS = 0.05
"""How long a reader whose turn it is not pauses before each batch."""


@dataclass
class Needs:
    """What runs and what it has needed, for an error.

    Attributes
    ----------
    step
        What runs.
    partition
        In how many parts of a rank's rows it has run so far.
    reading
        Bytes of the rows that it reads in this one; 0: unknown.
    held
        Bytes of rows that were collected for it.
    """

    step: str = ""
    partition: int = 0
    reading: int = 0
    held: int = 0

    def text(self) -> str:
        """Say it, and what a user can do."""
        where = f", partition {self.partition}" if self.partition > 1 else ""
        if self.reading:
            where += f" of {_mebibytes(self.reading)}"
        text = f"The step that ran{where}: {self.step}. " if self.step else ""
        if self.held:
            text += f"{_mebibytes(self.held)} of rows were collected for it. "
        return text + (
            "An answer that does not fit can be written by sink_parquet(), or read by collect_batches(). Otherwise set"
            " a smaller target_partition_size or memory_limit, or use more memory or more machines."
        )


class Turn:
    """What reads rows, if that is nothing else: to tell it from others, for as long as it exists."""


class MemoryWatch:
    """Looks at free memory while steps of a query read rows: a step takes no memory while it has to wait for them.

    Parameters
    ----------
    describe
        Says what runs and what it has needed, for the error.
    memory
        Where to look; None: as the kernel says.
    """

    def __init__(self, describe: Callable[[], str], memory: HostMemory | None = None) -> None:
        self._describe = describe
        self._memory = memory
        self._next = time.monotonic() + _SOONEST  # queries that end before cost nothing
        self._lock = threading.Lock()
        self._turn: weakref.ref[object] | None = None

    def look(self, reader: object) -> None:
        """Wait, where memory is short, before a reader gets more rows.

        Of several readers, the one that comes first goes on until it has read everything, so that the step behind it
        can end and free memory.

        Raises
        ------
        OutOfMemory
            If none becomes free.
        """
        if time.monotonic() < self._next:
            return
        memory = self._memory_now()
        near = _mark(memory, _NEAR, _NEAR_AT_MOST)
        left = memory.free() - near
        if left >= 0:
            self._turn = None
            self._next = time.monotonic() + min(_LATEST, max(_SOONEST, left / _BYTES_A_SECOND))
            return
        if not self._has_turn(reader):
            time.sleep(_TURN_SECONDS)
        self._wait(memory, _mark(memory, _END, _END_AT_MOST))

    def require(self, nbytes: int, left: Callable[[], int]) -> None:
        """Wait until there is memory for a step over so many bytes of rows, and for the same on other ranks.

        Parameters
        ----------
        nbytes
            Of all ranks.
        left
            The bytes that this rank may still use; negative where it uses more, and has spilled what it could.

        Raises
        ------
        OutOfMemory
            If there is none, and nothing more to spill.
        """
        memory = self._memory_now()
        least = min(_STEP * nbytes, int(_STEP_AT_MOST * memory.total)) + _mark(memory, _END, _END_AT_MOST)
        if left() < 0:
            self._wait(memory, least)

    def _memory_now(self) -> HostMemory:
        if self._memory is None:
            self._memory = HostMemory()
        return self._memory

    def _has_turn(self, reader: object) -> bool:
        with self._lock:
            first = None if self._turn is None else self._turn()
            if first is None:
                self._turn, first = weakref.ref(reader), reader
            return first is reader

    def _wait(self, memory: HostMemory, least: int) -> None:
        """Return when so many bytes are free; if they are not for a time, raise."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while memory.free() < least and memory.free() + memory.released() < least:
            if time.monotonic() >= deadline:
                raise OutOfMemory(
                    f"memory is exhausted: of the {_mebibytes(memory.total)} that this process may use, with all others"
                    f" that share them, {_mebibytes(memory.free())} are free. {self._describe()}"
                )
            time.sleep(_SOONEST)


def _mark(memory: HostMemory, share: float, most: int) -> int:
    return min(most, int(share * memory.total))


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"

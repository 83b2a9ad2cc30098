"""Raises an error in a query that exhausts memory, before the kernel kills its process."""

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
"""Bounds of the seconds between two measurements of free memory."""
_BYTES_A_SECOND = 4 << 30
"""The fastest that memory is expected to fill, by which the next measurement is due before it has."""
_NEAR, _NEAR_AT_MOST = 0.08, 512 << 20
"""Free memory below which one reader of rows goes on and others slow down: a share of all, and a number of bytes."""
_END, _END_AT_MOST = 0.03, 128 << 20
"""Free memory below which all readers wait for more: likewise."""
_STEP, _STEP_AT_MOST = 4, 1 / 4
"""What a step is assumed to take: a multiple of the bytes of its input, for that unpacked, the output and a copy of it.
At most a share of all memory, since other ranks may be on other machines.
"""
_PATIENCE_SECONDS = 2.0
"""The longest wait. Allocators keep what was freed for about a second."""
_TURN_SECONDS = 0.05
"""How long a reader sleeps before each batch while another one goes on."""


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
    """Identifies a reader of rows that has no object of its own."""


class MemoryWatch:
    """Measures free memory when a step of a query reads rows. A step that waits for rows allocates nothing meanwhile.

    Parameters
    ----------
    describe
        Returns what runs and what it has needed, for the error.
    memory
        What is measured; None: this process's memory.
    """

    def __init__(self, describe: Callable[[], str], memory: HostMemory | None = None) -> None:
        self._describe = describe
        self._memory = memory
        self._next = time.monotonic() + _SOONEST  # queries that end before cost nothing
        self._lock = threading.Lock()
        self._turn: weakref.ref[object] | None = None

    def look(self, reader: object) -> None:
        """Delay a reader that is about to read more rows, if memory is short.

        The first reader that comes goes on until it ends, so that its step can end and free memory.

        Parameters
        ----------
        reader
            Any object that lives as long as the reading; it is referred to weakly.

        Raises
        ------
        OutOfMemory
            If too little becomes free in time.
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

    def require(self, nbytes: int) -> None:
        """Wait until there is memory for running a step.

        Parameters
        ----------
        nbytes
            Bytes of its input on all ranks.

        Raises
        ------
        OutOfMemory
            If too little becomes free in time.
        """
        memory = self._memory_now()
        least = min(_STEP * nbytes, int(_STEP_AT_MOST * memory.total)) + _mark(memory, _END, _END_AT_MOST)
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
        """Return when so many bytes are free; raise if they are not in time."""
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

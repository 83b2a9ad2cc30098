"""The seam between queries and what computes them: a fragment is a lazy frame, a compute device runs it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

__all__ = ["ComputeDevice", "DeviceOfQuery", "Reading"]


@dataclass(frozen=True)
class Reading:
    """How the rows of a fragment will be read.

    Attributes
    ----------
    ordered
        In their order.
    at_once
        The fragment may begin before its first rows are asked for, and pause with them.
    ahead
        Bytes of rows that may wait until they are asked for. A device need not go ahead of its reader.
    """

    ordered: bool
    at_once: bool = False
    ahead: int = 0


class ComputeDevice(Protocol):
    """Runs fragments on this rank; several threads may do so at once.

    A fragment is a lazy frame over files, frames in memory and streams that can be read once. Running it needs no
    other rank. What comes back are rows in host memory with the types that Polars gives them.
    """

    @property
    def is_cpu(self) -> bool:
        """Whether Polars runs fragments as they are."""
        ...

    def collect(self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> pl.DataFrame:
        """Run a fragment and return its rows."""
        ...

    def batches(
        self,
        fragment: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        reading: Reading,
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows: from the first call of ``next`` on, or at once if ``reading.at_once``."""
        ...

    def take_host_steps(self) -> Sequence[str]:
        """Return what ran on the CPU though this is none, with the reasons, since this was last asked."""
        ...

    def close(self) -> None:
        """Give up memory and threads; no fragment may be running."""
        ...


class DeviceOfQuery:
    """A compute device for one query, which ends the fragments that were begun for it and not read to their end.

    Otherwise they would run until Python collects the cycles of a query that failed, and for good where Polars is part
    of a cycle: a lazy frame refers to what makes the rows of its sources.

    Parameters
    ----------
    device
        What runs the fragments; others use it, too.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._device = device
        self._begun: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    @property
    def is_cpu(self) -> bool:
        """Whether Polars runs fragments as they are."""
        return self._device.is_cpu

    def collect(self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> pl.DataFrame:
        """Run a fragment and return its rows."""
        return self._device.collect(fragment, optimizations)

    def batches(
        self,
        fragment: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        reading: Reading,
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows."""
        batches = self._device.batches(fragment, optimizations, reading)
        # What a generator runs ends with the call that reads it.
        if hasattr(batches, "close") and not isinstance(batches, Generator):
            with self._lock:
                self._begun.add(batches)
        return batches

    def take_host_steps(self) -> Sequence[str]:
        """Return what ran on the CPU though this is none, with the reasons, since this was last asked."""
        return self._device.take_host_steps()

    def close(self) -> None:
        """End the fragments of the query; the device stays."""
        with self._lock:
            begun = list(self._begun)
        for batches in begun:
            batches.close()

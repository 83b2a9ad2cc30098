"""The seam between queries and what computes them: a fragment is a lazy frame, a compute device runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import polars as pl

__all__ = ["ComputeDevice"]


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
        self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags, *, ordered: bool, at_once: bool = False
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows, in their order if ``ordered``; begins when the first is asked for.

        Parameters
        ----------
        at_once
            Whether it may begin before, and pause with its first rows.
        """
        ...

    def take_host_steps(self) -> Sequence[str]:
        """Return what ran on the CPU though this is none, with the reasons, since this was last asked."""
        ...

    def close(self) -> None:
        """Give up memory and threads; no fragment may be running."""
        ...

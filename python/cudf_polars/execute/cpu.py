"""The CPU as a compute device: a fragment is one query of Polars' streaming engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from cudf_polars.execute.fragments import Reading
from cudf_polars.execute.lazy_batches import LazyBatches

__all__ = ["CpuDevice"]


class CpuDevice:
    """Runs fragments by Polars; see :class:`~cudf_polars.execute.fragments.ComputeDevice`."""

    is_cpu = True

    def collect(self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> pl.DataFrame:
        """Run a fragment and return its rows."""
        return fragment.collect(engine="streaming", optimizations=optimizations)

    def batches(
        self,
        fragment: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        reading: Reading,
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows."""
        batches = LazyBatches(fragment, optimizations, ordered=reading.ordered, ahead=reading.ahead)
        return batches.begin() if reading.at_once else batches

    def take_host_steps(self) -> Sequence[str]:
        """Return nothing: the CPU is the host."""
        return ()

    def close(self) -> None:
        """Do nothing: there is nothing to give up."""

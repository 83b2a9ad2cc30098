"""What a rank finds out about rows while a query is planned: it runs what gives them, as far as is needed."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.key_counts import frequent_anywhere, most_frequent
from cudf_polars.execute.key_table import have_table
from cudf_polars.execute.keys import KeySet, Ranks, keys_of_rank, meet
from cudf_polars.execute.measured import Measured, Size
from cudf_polars.execute.paths import Paths
from cudf_polars.execute.rows import StreamRows
from cudf_polars.lower.findings import KeyLimit, KeyShare, LookupKey
from cudf_polars.lower.physical import Materialize, Schema, Stream

__all__ = ["RankFindings"]


class Runs(Ranks, Protocol):
    """What is asked of the executor."""

    paths: Paths

    def prepare(self, stream: Stream) -> None:
        """Run every exchange under ``stream``, and ``stream`` itself if it is one."""
        ...

    def rows_of(self, materialized: Materialize) -> StreamRows:
        """Return what there is of rows on this rank."""
        ...

    def read_up_to(self, rows: StreamRows, schema: Schema, limit: float) -> None:
        """Read rows until there are more than ``limit`` bytes or no more."""
        ...

    def peeked(self, materialized: Materialize) -> Iterator[pl.DataFrame]:
        """Yield the rows of this rank that have been read; they stay."""
        ...

    def measuring(self, stream: Stream) -> AbstractContextManager[Measured]:
        """Count what happens in this block as the stream's."""
        ...


class RankFindings:
    """Findings of one rank, which agree with those of the others: every method is collective.

    Parameters
    ----------
    executor
        Runs the streams.
    counts
        Whether sizes on which only the cost depends are counted; else they are estimated.
    """

    def __init__(self, executor: Runs, *, counts: bool) -> None:
        self._executor, self._counts = executor, counts

    def run_and_measure(self, materialized: Materialize, limit: int | None) -> Size:
        """Run ``materialized`` until it ends or some rank has more than ``limit`` bytes, and sum over the ranks.

        Parameters
        ----------
        materialized
            Its rows stay on this rank and are read later by what the caller builds on it.
        limit
            Bytes; ``None`` reads to the end.
        """
        executor = self._executor
        executor.prepare(materialized)
        rows = executor.rows_of(materialized)
        with executor.measuring(materialized):
            if rows.rest is not None:
                executor.read_up_to(rows, materialized.schema, math.inf if limit is None else limit)
        message = struct.pack("<QQ?", rows.height, rows.nbytes, rows.rest is None)
        sizes = [struct.unpack("<QQ?", value) for value in executor.allgather_bytes(message)]
        size = Size(tuple(s[0] for s in sizes), sum(s[1] for s in sizes), all(s[2] for s in sizes))
        rows.rows_anywhere, rows.rest_anywhere = size.rows, not size.complete
        return size

    def measure(self, materialized: Materialize, limit: int | None) -> Size:
        """Do the same, or only prepare ``materialized`` and estimate what it holds."""
        if self._counts:
            return self.run_and_measure(materialized, limit)
        self._executor.prepare(materialized)
        return Size.estimated(materialized, limit)

    def find_keys(self, materialized: Materialize, limits: Mapping[str, KeyLimit]) -> list[KeySet]:
        """Return the values that columns have in the rows of ``materialized`` which have been read, over all ranks.

        Parameters
        ----------
        materialized
            Its rows have been counted.
        limits
            By column.
        """
        executor = self._executor
        if any(limit.values for limit in limits.values()):
            executor.paths.took(paths.KEYS)
        with executor.measuring(materialized):
            rows = executor.rows_of(materialized).rows_anywhere
            batches = executor.peeked(materialized)
            found = meet(keys_of_rank(batches, limits, materialized.schema, rows), executor)
        if any(keys.bloom_filter is not None for keys in found):
            executor.paths.took(paths.BLOOM_FILTER)
        return found

    def can_look_up(self, materialized: Materialize, key: LookupKey) -> bool:
        """Return whether the rows of ``materialized`` can be found by the value of a key, over all ranks.

        Parameters
        ----------
        materialized
            Its rows have been read to the end.
        """
        with self._executor.measuring(materialized):
            values = (batch[key.name] for batch in self._executor.peeked(materialized))
            return have_table(values, key, self._executor)

    def count_hashes(self, materialized: Materialize, hashed: pl.Expr, asked: KeyShare) -> dict[int, int]:
        """Return how many of the rows of ``materialized`` that have been read have a hash, over all ranks.

        Parameters
        ----------
        hashed
            The hash of some columns.
        asked
            Which are counted.
        """
        with self._executor.measuring(materialized):
            mine = most_frequent(self._executor.peeked(materialized), hashed, asked)
            return frequent_anywhere(mine, asked.least, self._executor.allgather_bytes)

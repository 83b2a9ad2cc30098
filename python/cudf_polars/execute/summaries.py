"""Summaries of rows that pass, for steps that need those around a row: by chunks of a rank's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.execute.rows import detached
from cudf_polars.execute.streams import conform
from cudf_polars.lower.physical import Carried

__all__ = ["Summaries", "Summarized", "merged"]

_SUMMARIES = 64
"""How many summaries of batches are merged at a time."""
_SUMMARIZED_BYTES = 32 << 20
"""They are merged before the batches that they are of have more bytes of memory."""


@dataclass(frozen=True)
class Summarized:
    """A chunk of a rank's rows.

    Attributes
    ----------
    rows
        How many they are; at least one.
    summary
        What they are to the rows of other chunks.
    """

    rows: int
    summary: pl.DataFrame


class Summaries:
    """Summarizes rows while they pass.

    Parameters
    ----------
    stream
        Says what a summary is.
    chunk_bytes
        Bytes of a chunk, about.
    """

    def __init__(self, stream: Carried, chunk_bytes: float) -> None:
        self._stream, self._chunk_bytes = stream, chunk_bytes
        self._chunks: list[Summarized] = []
        self._parts: list[pl.DataFrame] = []
        self._rows = 0
        self._nbytes = self._held = 0
        self._last: pl.DataFrame | None = None  # the columns `together` of the last row

    def look(self, batch: pl.DataFrame) -> None:
        """See the next rows."""
        if self._nbytes >= self._chunk_bytes:
            begin = self._next_begins(batch)
            self._add(batch.head(begin))
            if begin == batch.height:
                return
            self._end_chunk()
            batch = batch.slice(begin)
        self._add(batch)

    def finish(self) -> list[Summarized]:
        """Return the chunks of all rows, in their order; none if there were no rows."""
        if self._rows:
            self._end_chunk()
        return self._chunks

    def _next_begins(self, batch: pl.DataFrame) -> int:
        """Return how many rows of a batch still belong to the chunk, because they are equal to its last."""
        keys = self._stream.together
        if not keys or self._last is None:
            return 0
        # Python has no exact value for some types: a series of one row is broadcast.
        differs = pl.any_horizontal(pl.col(key).ne_missing(pl.lit(self._last[key])) for key in keys)
        first = batch.select(differs.arg_true().first()).item()
        return batch.height if first is None else int(first)

    def _add(self, batch: pl.DataFrame) -> None:
        if not batch.height:
            return
        nbytes = int(batch.estimated_size())
        self._parts.append(conform(self._stream.summarize(batch), self._stream.summary))
        self._rows += batch.height
        self._nbytes += nbytes
        # A summary may be a slice of its batch, and then keeps all of it.
        self._held += nbytes
        if self._stream.together:
            self._last = batch.select(self._stream.together).tail(1)
        if len(self._parts) > _SUMMARIES or self._held > _SUMMARIZED_BYTES:
            self._parts, self._held = [merged(self._stream, self._parts)], 0

    def _end_chunk(self) -> None:
        self._chunks.append(Summarized(self._rows, detached(merged(self._stream, self._parts))))
        self._parts, self._rows, self._nbytes, self._held = [], 0, 0, 0


def merged(stream: Carried, summaries: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Merge summaries, given in the order of their rows, into one; it has no row if they have none."""
    nothing = pl.DataFrame(schema=dict(stream.summary))
    every = pl.concat([nothing, *summaries])
    return conform(stream.merge(every), stream.summary) if every.height else nothing

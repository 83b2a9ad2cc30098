"""The rows of a query batch by batch: what ``collect_batches`` returns, and where its batches come from."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, Self

import polars as pl
from rapidsmpf.streaming.batch_stream import BatchStream

from cudf_polars.execute.run import OpenQuery
from cudf_polars.execute.streams import export_frame

__all__ = ["BATCH_ROWS", "BatchSource", "Batches", "GatheredBatches", "RankBatches"]

BATCH_ROWS = 122_880
"""Rows of the batches that ranks send to a client when the caller names no number (Polars' morsel size)."""


class BatchSource(Protocol):
    """Gives the batches of a query that has begun."""

    @property
    def schema(self) -> pl.Schema:
        """The types of the rows."""
        ...

    def next_batch(self) -> pl.DataFrame | None:
        """Return the next batch, None at the end."""
        ...

    def close(self, *, wait: bool) -> None:
        """End the query; idempotent. Any thread may call this.

        Parameters
        ----------
        wait
            Whether to return only when nothing of it runs any more.
        """
        ...


class Batches:
    """The result of ``collect_batches``: an iterator of frames that also exports an Arrow stream, once.

    Parameters
    ----------
    begin
        Begins the query.
    lazy
        Whether it begins when the first batch is asked for.
    """

    def __init__(self, begin: Callable[[], BatchSource], *, lazy: bool) -> None:
        self._begin = begin
        self._source: BatchSource | None = None
        self._ended = False
        self._reason = ""
        if not lazy:
            self._open()

    def _open(self) -> BatchSource | None:
        if self._reason:
            raise RuntimeError(self._reason)
        if self._source is None and not self._ended:
            self._source = self._begin()
        return self._source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pl.DataFrame:
        source = self._open()
        if source is None:
            raise StopIteration
        try:
            batch = source.next_batch()
        except BaseException:
            self._end(wait=False)
            if self._reason:  # ended from outside, which the query has noticed before
                raise RuntimeError(self._reason) from None
            raise
        if batch is None:
            self._end(wait=False)
            raise StopIteration
        return batch

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows that are left as a capsule ``arrow_array_stream``."""
        source = self._open()
        if source is None:
            raise RuntimeError("these batches were read already")
        return BatchStream(source.schema, self, export_frame).__arrow_c_stream__()

    def __del__(self) -> None:
        """End the query where its batches were not all read."""
        with contextlib.suppress(Exception):  # the interpreter may be ending
            self._end(wait=False)

    def end(self, reason: str) -> None:
        """End the query, and wait until nothing of it runs; who asks for a batch afterwards gets the reason."""
        if not self._ended:
            self._reason = reason
            self._end(wait=True)

    def _end(self, *, wait: bool) -> None:
        source, self._source = getattr(self, "_source", None), None
        self._ended = True
        if source is not None:
            source.close(wait=wait)


class RankBatches:
    """The rows of one rank while they are made.

    Parameters
    ----------
    opened
        The query, run up to its last step.
    optimizations
        The user's optimisation flags.
    chunk_size
        Rows of a batch; None: as they come.
    maintain_order
        Whether the order matters.
    failed
        Is told the error when the last step fails.
    """

    def __init__(
        self,
        opened: OpenQuery,
        optimizations: pl.QueryOptFlags,
        *,
        chunk_size: int | None,
        maintain_order: bool,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.schema = opened.schema
        self._stop = opened.stop
        self._failed = failed
        self._batches: Iterator[pl.DataFrame] | None = opened.batches(
            optimizations, ordered=maintain_order, chunk_size=chunk_size
        )

    def next_batch(self) -> pl.DataFrame | None:
        """Return the next batch, None at the end."""
        batches = self._batches
        if batches is None:
            return None
        try:
            return next(batches, None)
        except BaseException as error:
            self._failed(error)
            raise

    def close(self, *, wait: bool) -> None:
        """End the query on this rank; the others need nothing of it any more."""
        if self._batches is not None:
            self._batches = None
            self._stop(wait=wait)


class GatheredBatches:
    """The rows of all ranks, as their client reads them.

    Parameters
    ----------
    schema
        The types of the rows.
    first
        Of each rank, what it has sent, and whether that is all.
    more
        ``more(ranks)`` asks these ranks for more, and returns their frames and whether these are the last.
    leave
        Tells the ranks that no more is wanted.
    in_order
        Whether the ranks' rows have to come in their order.
    """

    def __init__(
        self,
        schema: pl.Schema,
        first: list[tuple[list[pl.DataFrame], bool]],
        more: Callable[[set[int]], dict[int, tuple[list[pl.DataFrame], bool]]],
        leave: Callable[[], None],
        *,
        in_order: bool,
    ) -> None:
        self.schema = schema
        self._more, self._leave, self._in_order = more, leave, in_order
        self._frames: list[deque[pl.DataFrame]] = [deque() for _ in first]
        self._open: set[int] = set(range(len(first)))
        self._take(dict(enumerate(first)))

    def _take(self, answers: dict[int, tuple[list[pl.DataFrame], bool]]) -> None:
        for rank, (frames, ended) in answers.items():
            self._frames[rank].extend(frame for frame in frames if frame.height)
            if ended:
                self._open.discard(rank)

    def next_batch(self) -> pl.DataFrame | None:
        """Return the next batch, None at the end."""
        while True:
            for rank, frames in enumerate(self._frames):
                if frames:
                    return frames.popleft()
                if rank in self._open and self._in_order:
                    break
            if not self._open:
                return None
            self._take(self._more({min(self._open)} if self._in_order else set(self._open)))

    def close(self, *, wait: bool) -> None:
        """End the query on all ranks."""
        if self._open:
            self._open.clear()
            self._leave()

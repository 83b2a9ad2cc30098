"""The rows of a lazy frame batch by batch, while Polars' streaming engine makes them.

``LazyFrame.collect_batches`` is not used: where Polars panics, it ends as if there were no more rows.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Self

import polars as pl

from cudf_polars.execute.streams import StoppedError

__all__ = ["LazyBatches"]

_PROBE = pl.Series([0])
"""After Ctrl-C its sum, as all that is begun by Polars, raises KeyboardInterrupt until all that then ran has ended."""

_LOOK_SECONDS = 0.05
"""How often a query that waits for its reader looks whether there was a Ctrl-C, which keeps others from running."""

_EXIT_SECONDS = 10.0
"""The longest wait at interpreter shutdown for queries whose batches were not all read."""


class LazyBatches(Iterator[pl.DataFrame]):
    """Runs a lazy frame, once, and yields its rows; what the query raises is raised behind the rows before it.

    The query begins when the first batch is asked for, if not before, on a thread of its own, and pauses while a batch
    waits. It ends early, without a wait for it, when this is closed or no longer referred to, and by Ctrl-C.

    Parameters
    ----------
    frame
        The query.
    optimizations
        For the query.
    ordered
        Whether the rows have to come in their order.
    chunk_size
        Rows of a batch; None: as Polars makes them.
    ahead
        Bytes of batches that may wait for the reader, so that the query goes on while the reader has other things to
        do; 0: one batch.
    """

    def __init__(
        self,
        frame: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        *,
        ordered: bool,
        chunk_size: int | None = None,
        ahead: int = 0,
    ) -> None:
        self._run: _Run | None = _Run(frame, optimizations, ordered, chunk_size, ahead)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pl.DataFrame:
        if (run := self._run) is None:
            raise StopIteration
        try:
            batch = run.take()
        except BaseException:
            self.close()
            raise
        if batch is None:
            self._run = None
            raise StopIteration
        return batch

    def begin(self) -> Self:
        """Begin the query now; it pauses with its first batch until that is asked for."""
        if self._run is not None:
            self._run.begin()
        return self

    def close(self) -> None:
        """Have the query end at its next batch; idempotent."""
        run, self._run = getattr(self, "_run", None), None
        if run is not None:
            run.stop()

    def __del__(self) -> None:
        """End the query where its batches were not all read."""
        self.close()


class _Run:
    """A query on its thread, which must not keep alive its reader."""

    def __init__(
        self,
        frame: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        ordered: bool,
        chunk_size: int | None,
        ahead: int,
    ) -> None:
        self._query: tuple[pl.LazyFrame, pl.QueryOptFlags, bool, int | None] | None = (
            frame,
            optimizations,
            ordered,
            chunk_size,
        )
        self._batches: SimpleQueue[pl.DataFrame | BaseException | None] = SimpleQueue()
        self._room = threading.Semaphore(0)  # as many as are asked for, or may be there before
        self._ahead, self._waiting, self._before = ahead, 0, 0
        self._lock = threading.Lock()
        self._stopped = False
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin the query, if it has not begun."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="riverrun-fragment", daemon=True)
            self.thread.start()
            _running.add(self)

    def take(self) -> pl.DataFrame | None:
        """Return the next batch, None at the end; raise what the query has raised."""
        self.begin()
        with self._lock:
            if self._before:
                self._before -= 1
            else:
                self._room.release()
        given = self._batches.get()
        if isinstance(given, BaseException):
            raise given
        if self._ahead and given is not None:
            with self._lock:
                self._waiting -= int(given.estimated_size())
        if self._stopped:  # by another thread: these need not be all rows
            raise StoppedError("the query was ended before all of its rows were read")
        return given

    def stop(self) -> None:
        """Have the query end at its next batch."""
        self._stopped = True
        self._query = None
        self._room.release()

    def _work(self) -> None:
        self._batches.put(self._run())

    def _run(self) -> BaseException | None:
        """Run the query unless it was stopped before; return the exception that it raised, if any."""
        query, self._query = self._query, None
        if query is None:
            return None
        frame, optimizations, ordered, chunk_size = query
        try:
            frame.sink_batches(
                self._put,
                chunk_size=chunk_size,
                maintain_order=ordered,
                engine="streaming",
                optimizations=optimizations,
            )
        except BaseException as error:  # a panic of Polars is no Exception
            return error
        return None

    def _put(self, batch: pl.DataFrame) -> bool:
        """Give a batch when it is asked for; return whether no more are wanted."""
        while not self._room.acquire(timeout=_LOOK_SECONDS):
            _PROBE.sum()
        if not self._stopped:
            self._batches.put(batch)
            self._go_on(batch)
        return self._stopped

    def _go_on(self, batch: pl.DataFrame) -> None:
        """Make room for a batch that is not asked for, unless many bytes wait already."""
        if self._ahead:
            with self._lock:
                self._waiting += int(batch.estimated_size())
                if self._waiting < self._ahead:
                    self._before += 1
                    self._room.release()


_running: weakref.WeakSet[_Run] = weakref.WeakSet()


def _end_all() -> None:
    """Stop all running queries: a thread that acquires the GIL during interpreter shutdown would abort the process."""
    runs = [run for run in _running if run.thread is not None and run.thread.is_alive()]
    for run in runs:
        run.stop()
    for run in runs:
        assert run.thread is not None
        run.thread.join(_EXIT_SECONDS)


atexit.register(_end_all)

"""Batches between Polars and exchanges: a stream as a source of a query, with exactly the types that were sent."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl
from polars.io.plugins import register_io_source

from cudf_polars.execute.errors import failure_of_rank
from cudf_polars.execute.transport import ArrowStream
from cudf_polars.lower.physical import StreamReadTwiceError
from cudf_polars.plan.columns import keep_columns

__all__ = [
    "Brake",
    "RowCount",
    "StoppedError",
    "conform",
    "export_frame",
    "read_stream",
    "scan_batches",
    "scan_stored",
    "scan_stream",
    "stream_batches",
]


class StoppedError(RuntimeError):
    """The rows of a query are no longer wanted."""


class Brake:
    """Ends the running steps of a query from outside: dropping what a running Polars query gives does not end it.

    A query does end as soon as one of its sources raises, which those that have this do.

    Parameters
    ----------
    look
        Called with a reader before it reads a batch; may wait, or raise. None: nothing is.
    """

    def __init__(self, look: Callable[[object], None] | None = None) -> None:
        self.look: Callable[[object], None] = _nothing if look is None else look
        self._changed = threading.Condition()
        self._reading = 0
        self._ended = False

    def __enter__(self) -> None:
        """Begin to read a batch."""
        with self._changed:
            if self._ended:
                raise StoppedError("the query was ended before all of its rows were read")
            self._reading += 1

    def __exit__(self, *_: object) -> None:
        """Note that the batch is there."""
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()

    def end(self, *, wait: bool) -> None:
        """Have what reads from now on raise; with ``wait``, return when nothing reads any more."""
        with self._changed:
            self._ended = True
            if wait:
                self._changed.wait_for(lambda: not self._reading)


def _nothing(_: object) -> None:
    """Let a reader read."""


@dataclass
class RowCount:
    """How many rows a source of a query has given.

    Attributes
    ----------
    rows
        Rows so far.
    complete
        Whether there are no more.
    """

    rows: int = 0
    complete: bool = False


class _Reader(Protocol):
    """Gives batches with the columns that are asked for, at least one, and None at the end."""

    def next_batch(self, columns: Sequence[str]) -> pl.DataFrame | None: ...


class _StreamReader:
    """Reads an Arrow stream; a failure of another rank is raised as what it is."""

    def __init__(
        self, source: ArrowStream, schema: Mapping[str, pl.DataType], brake: Brake | None = None
    ) -> None:
        from polars._plr import PyArrowCStreamReader

        self._reader = PyArrowCStreamReader(source)
        self._schema = schema
        self._brake = Brake() if brake is None else brake

    def next_batch(self, columns: Sequence[str]) -> pl.DataFrame | None:
        try:
            self._brake.look(self)
            with self._brake:
                batch = self._reader.next_batch(list(columns))
        except pl.exceptions.ComputeError as error:
            failure = failure_of_rank(error)
            if failure is None:
                raise
            raise failure from None
        if batch is None:
            return None
        # Polars 2.1 imports an Enum as Categorical.
        return conform(pl.DataFrame._from_pydf(batch), {name: self._schema[name] for name in columns})


class _BatchReader:
    """Reads frames from an iterator."""

    def __init__(self, batches: Iterable[pl.DataFrame]) -> None:
        self._batches = iter(batches)

    def next_batch(self, columns: Sequence[str]) -> pl.DataFrame | None:
        batch = next(self._batches, None)
        return None if batch is None else batch.select(columns)


def scan_stream(
    source: ArrowStream,
    schema: Mapping[str, pl.DataType],
    count: RowCount | None = None,
    brake: Brake | None = None,
) -> pl.LazyFrame:
    """Return a lazy frame over ``source``, which can be run once.

    Parameters
    ----------
    source
        Record batches; their columns are those of ``schema``.
    schema
        Names and types of the columns.
    count
        Where to count the rows that are read.
    brake
        Ends the reading.

    Notes
    -----
    Not Polars' own ``scan_arrow_c_stream``: that filters before it takes the head that was asked for first, has no
    rows when no column is asked for, gives none when it is read again, and loses the types of errors.
    """
    return _scan(_StreamReader(source, schema, brake), schema, count)


def scan_stored(
    read: Callable[[], ArrowStream],
    schema: Mapping[str, pl.DataType],
    count: RowCount | None = None,
    brake: Brake | None = None,
) -> pl.LazyFrame:
    """Return a lazy frame over rows that can be read several times: ``read()`` begins anew."""
    return _scan(lambda: _StreamReader(read(), schema, brake), schema, count)


def scan_batches(
    batches: Iterable[pl.DataFrame], schema: Mapping[str, pl.DataType], count: RowCount | None = None
) -> pl.LazyFrame:
    """Return a lazy frame over frames with the columns of ``schema``, which can be run once."""
    return _scan(_BatchReader(batches), schema, count)


def stream_batches(
    source: ArrowStream, schema: Mapping[str, pl.DataType], brake: Brake | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the rows of ``source`` as frames."""
    reader = _StreamReader(source, schema, brake)
    while (batch := reader.next_batch(list(schema))) is not None:
        yield batch
        del batch  # or it would stay until the next one has come


def read_stream(source: ArrowStream, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return all rows of ``source``."""
    return pl.concat([pl.DataFrame(schema=dict(schema)), *stream_batches(source, schema)], rechunk=False)


def export_frame(frame: pl.DataFrame, array: int, schema: int) -> object:
    """Export a frame as one record batch, into the C structs at these addresses or as a capsule of a stream.

    A panic of Polars is raised here; the capsule is read where a panic ends the process.
    """
    rows = frame.to_struct("").rechunk()
    if any(map(_may_hold_categories, frame.dtypes)):
        # Of categories, Polars 2.1 exports the other way the codes alone.
        return rows.__arrow_c_stream__()
    rows._s._export_arrow_to_c(array, schema)
    return None


def _may_hold_categories(dtype: pl.DataType) -> bool:
    match dtype:
        case pl.List() | pl.Array():
            inner = dtype.inner
            return isinstance(inner, type) or _may_hold_categories(inner)
        case pl.Struct():
            return any(isinstance(f.dtype, type) or _may_hold_categories(f.dtype) for f in dtype.fields)
    # Of other nested types, and of those that users define, nobody knows.
    return not (
        dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Binary, pl.Boolean, pl.Null)
    )


def conform(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a frame with exactly the columns and types of ``schema``.

    The types that Polars plans for a step and those of its result differ now and then, above all when there is no row.

    Raises
    ------
    polars.exceptions.PolarsError
        If a column is not there, or has values that its planned type cannot hold.
    """
    found = frame.schema
    if list(found) != list(schema):
        frame = keep_columns(frame, schema)
    changed = [pl.col(name).cast(dtype) for name, dtype in schema.items() if found[name] != dtype]
    return frame.with_columns(changed) if changed else frame


def _scan(
    source: _Reader | Callable[[], _Reader], schema: Mapping[str, pl.DataType], count: RowCount | None
) -> pl.LazyFrame:
    """Return a lazy frame over a reader, or over as many of them as the frame is read."""
    rows = _Source(source, list(schema), RowCount() if count is None else count)
    return register_io_source(rows, schema=dict(schema))


class _Source:
    """What Polars calls to read the rows of a reader.

    Polars' views leave out some of a query, which its serialised form has. So a query with this is serialised and read
    back, in one process: it goes through that as a number, and comes out as itself.
    """

    def __init__(self, source: _Reader | Callable[[], _Reader], names: list[str], count: RowCount) -> None:
        self._source, self._names, self._count = source, names, count
        self._started = False
        self._number = next(_numbers)
        _sources[self._number] = self

    def __reduce__(self) -> tuple[Callable[[int], _Source], tuple[int]]:
        return _source_of, (self._number,)

    def _reader(self) -> _Reader:
        if callable(self._source):
            return self._source()
        if self._started:
            raise StreamReadTwiceError(
                "Polars reads the rows of an exchange twice, which are there once: please report the query"
            )
        self._started = True
        return self._source

    def __call__(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        rows = self._reader()
        wanted = self._names if with_columns is None else with_columns
        remaining = n_rows
        while remaining is None or remaining > 0:
            frame = rows.next_batch(wanted or self._names[:1])
            if frame is None:
                self._count.complete = True
                return
            self._count.rows += frame.height
            if remaining is not None:
                # Polars asks for the head of the rows, and to filter that.
                frame = frame.head(remaining)
                remaining -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if wanted else pl.DataFrame(height=frame.height)


_numbers = itertools.count()
_sources: weakref.WeakValueDictionary[int, _Source] = weakref.WeakValueDictionary()


def _source_of(number: int) -> _Source:
    try:
        return _sources[number]
    except KeyError:
        raise RuntimeError(
            "the rows of an exchange are in the process that made it: please report the query"
        ) from None

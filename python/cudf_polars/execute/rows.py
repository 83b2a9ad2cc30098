"""The rows of a stream on this rank: in a frame, in streams that are read once, or on their way."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import polars as pl
from rapidsmpf.streaming.batch_stream import BatchStream

from cudf_polars.execute.streams import conform, export_frame
from cudf_polars.execute.transport import ArrowStream, Source, StoredRows, is_stream, may_be_stored
from cudf_polars.lower.physical import Schema, SortKey
from cudf_polars.lower.ranges import key_columns

__all__ = [
    "DESTINATION",
    "WEIGHT",
    "Addressing",
    "KeySample",
    "StreamRows",
    "addressed",
    "addressing",
    "chunks",
    "concatenated",
    "cut",
    "detached",
    "handed_over",
    "memory_of",
    "opened",
    "partitioned",
    "stored",
    "with_destination",
]

T = TypeVar("T")

DESTINATION = "__rr_destination"
"""The column (UInt32) that says to which partition a row goes."""
WEIGHT = "__rr_weight"
"""The column of a sample that says for how many rows each stands."""
_VIEW = 16
"""Bytes of the view that a column has for each string."""


@dataclass
class StreamRows:
    """The rows of a stream on this rank: in a frame, in partitions, or with more to come.

    What is in partitions has the columns of ``schema`` if it is given; those of the stream are among them.

    Attributes
    ----------
    frame
        Where a rank works on all of its rows at once: these, or those that have been read.
    partitions
        The sources of each partition of this rank; an exchange of one partition has one list, and so have rows that are
        kept in one piece.
    shared
        Whether the partitions are kept to be read again.
    rest, rest_anywhere
        Those that have not been read; whether any rank has such.
    rows_anywhere
        How many rows have been read on all ranks together, once they were counted.
    lazy, height
        A frame over rows that are stored elsewhere, to be run once, and the number of its rows.
    nbytes
        Bytes of memory of those that were read to be measured.
    """

    frame: pl.DataFrame | None = None
    schema: Schema | None = None
    partitions: list[list[Source]] = field(default_factory=list)
    shared: bool = False
    rest: Iterator[pl.DataFrame] | None = None
    rest_anywhere: bool = False
    rows_anywhere: int = 0
    lazy: pl.LazyFrame | None = None
    height: int = 0
    nbytes: int = 0

    @property
    def is_frame(self) -> bool:
        """Whether all rows are in ``frame``."""
        return self.frame is not None and not self.partitions and self.rest is None and self.lazy is None

    def take(self, partition: int) -> list[Source]:
        """Return the sources of a partition, which are gone then unless they are kept."""
        sources = self.partitions[partition]
        if not self.shared:
            self.partitions[partition] = []
        return sources

    def take_all(self) -> list[Source]:
        """Return the sources of all partitions."""
        return [source for number in range(len(self.partitions)) for source in self.take(number)]


def opened(source: Source, *, last: bool) -> ArrowStream:
    """Return the rows of a source; with ``last``, for the last time."""
    return source if is_stream(source) else source.stream(last=last)


def stored(source: Source) -> StoredRows:
    """Return a source whose rows are counted."""
    return source.store() if may_be_stored(source) else source  # type: ignore[return-value]


def addressed(schema: Schema) -> Schema:
    """Return the schema of rows that carry the number of the partition that they are sent to."""
    return {**schema, DESTINATION: pl.UInt32()}


Addressing: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]
"""Gives rows the column ``DESTINATION``; they may become more."""


def addressing(target: pl.Expr) -> Addressing:
    """Return what gives rows the column that an expression computes."""
    return lambda batch: batch.with_columns(target)


def with_destination(
    batches: Iterable[pl.DataFrame], schema: Schema, target: Addressing | None
) -> Iterator[pl.DataFrame]:
    """Yield batches with the column ``DESTINATION`` and the types of ``schema``, which has it.

    Parameters
    ----------
    target
        Gives them the column; None: the batches have it.
    """
    for batch in batches:
        yield conform(batch if target is None else target(batch), schema)
        del batch  # or it would stay until the next one has been made


class KeySample:
    """Keys of some of the rows that pass, each with the number of rows that it stands for.

    Parameters
    ----------
    keys
        The keys of a sort.
    rows
        How many rows of a batch to take.
    """

    def __init__(self, keys: tuple[SortKey, ...], rows: int) -> None:
        self._keys, self._rows = keys, rows
        self._frames: list[pl.DataFrame] = []

    def look(self, batch: pl.DataFrame) -> None:
        """Take some rows of a batch."""
        stride = max(1, batch.height // self._rows)
        weight = pl.lit(float(stride)).alias(WEIGHT)
        keys = key_columns(self._keys, batch.schema)
        taken = batch.lazy().select(keys).gather_every(stride).with_columns(weight)
        self._frames.append(detached(taken.collect(engine="streaming")))

    def rows(self, schema: Schema) -> pl.DataFrame:
        """Return what was taken; ``schema`` is that of the batches."""
        if not self._frames:
            self.look(pl.DataFrame(schema=dict(schema)))
        return pl.concat(self._frames)


def partitioned(*sent: Sequence[ArrowStream], schema: Schema | None = None) -> StreamRows:
    """Return the rows of one or several operations, which have the same partitions."""
    return StreamRows(partitions=[list(streams) for streams in zip(*sent, strict=True)], schema=schema)


def concatenated(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of all frames, with the types of the first that has rows: others may show what was planned."""
    if len(frames) == 1:
        return frames[0]
    schema = next((frame for frame in frames if frame.height), frames[0]).schema
    with_rows = [conform(frame, schema) for frame in frames if frame.height]
    return pl.concat(with_rows, rechunk=False) if with_rows else pl.DataFrame(schema=schema)


def chunks(batches: Iterable[pl.DataFrame], nbytes: int) -> Iterator[pl.DataFrame]:
    """Yield batches as fewer frames, each of about so many bytes; at least one, if there is a batch."""
    frames: list[pl.DataFrame] = []
    size = 0
    for batch in batches:
        frames.append(batch)
        size += int(batch.estimated_size())
        del batch
        if size >= nbytes:
            yield _taken(frames)
            size = 0
    if frames:
        yield _taken(frames)


def cut(batches: Iterable[pl.DataFrame], heights: Iterable[int]) -> Iterator[pl.DataFrame]:
    """Yield the rows of batches as frames of these heights, of which there are as many rows."""
    rows = iter(batches)
    rest: pl.DataFrame | None = None
    for height in heights:
        frames: list[pl.DataFrame] = []
        missing = height
        while missing:
            batch = next(rows) if rest is None else rest
            rest = batch.slice(missing) if batch.height > missing else None
            frames.append(batch.head(missing))
            missing -= frames[-1].height
            del batch
        yield _taken(frames)


def memory_of(frame: pl.DataFrame) -> int:
    """Return the bytes of a frame; ``estimated_size`` leaves out the views of columns of strings and binaries."""
    texts = sum(dtype in (pl.String, pl.Binary) for dtype in frame.dtypes)
    return int(frame.estimated_size()) + _VIEW * texts * frame.height


def detached(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy a frame: columns of strings may refer to buffers of the rows that it was made from, and keep them alive."""
    if not frame.width:
        return frame
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    buffer.seek(0)
    return conform(pl.read_ipc(buffer), frame.schema)


def _taken(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Take frames out of a list and return them as one."""
    whole = pl.concat(frames, rechunk=False)
    frames.clear()
    return whole


def handed_over(batches: Iterator[pl.DataFrame], schema: Schema, take: Callable[[ArrowStream], T]) -> T:
    """Let C++ take batches; what fails while they are made is raised as what it is."""
    source = BatchStream(pl.Schema(schema), batches, export_frame)
    try:
        return take(source)
    except BaseException:
        if source.error is not None:
            raise source.error from None
        raise

"""The rows of a stream on this rank: in a frame, in streams that are read once, or on their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.execute.streams import conform
from cudf_polars.execute.transport import ArrowStream
from cudf_polars.lower.physical import Schema, SortKey
from cudf_polars.lower.ranges import key_columns

__all__ = ["WEIGHT", "KeySample", "StreamRows", "chunks", "concatenated", "partitioned"]

WEIGHT = "__rr_weight"
"""The column of a sample that says for how many rows each stands."""


@dataclass
class StreamRows:
    """The rows of a stream on this rank: a frame with perhaps more to come, or Arrow streams to be read once.

    The streams have the columns of ``schema`` if it is given; those of the stream are among them.

    Attributes
    ----------
    partitions
        The streams of each partition of this rank; an exchange of one partition has one list.
    lazy, height
        A frame over rows that are stored elsewhere, to be run once, and the number of its rows.
    """

    frame: pl.DataFrame | None = None
    schema: Schema | None = None
    partitions: list[list[ArrowStream]] = field(default_factory=list)
    rest: Iterator[pl.DataFrame] | None = None
    rest_anywhere: bool = False
    lazy: pl.LazyFrame | None = None
    height: int = 0

    def is_frame(self) -> bool:
        """Whether a frame has all of the rows."""
        return self.frame is not None and self.rest is None


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
        self._frames.append(
            batch.lazy().select(keys).gather_every(stride).with_columns(weight).collect(engine="streaming")
        )

    def rows(self, schema: Schema) -> pl.DataFrame:
        """Return what was taken; ``schema`` is that of the batches."""
        if not self._frames:
            self.look(pl.DataFrame(schema=dict(schema)))
        return pl.concat(self._frames)


def partitioned(*sent: list[ArrowStream], schema: Schema | None = None) -> StreamRows:
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
        if size >= nbytes:
            yield pl.concat(frames, rechunk=False)
            frames, size = [], 0
    if frames:
        yield pl.concat(frames, rechunk=False)

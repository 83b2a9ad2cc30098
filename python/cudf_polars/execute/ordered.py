"""Exchanges that look at the rows: by ranges of keys, and by the places of rows in the order of all ranks.

Each reads its input to the end first, or its keys, for where a row goes depends on the rows of all ranks.
"""

from __future__ import annotations

import io
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.paths import Paths
from cudf_polars.execute.rows import DESTINATION, WEIGHT, KeySample, StreamRows, addressed, cut, partitioned
from cudf_polars.execute.streams import Brake, conform, scan_batches, scan_stream
from cudf_polars.execute.summaries import Summaries, Summarized, merged
from cudf_polars.execute.transport import ArrowStream, Source
from cudf_polars.lower.physical import (
    Carried,
    GlobalRowIndex,
    GlobalSlice,
    Local,
    OrderedConcat,
    PositionExchange,
    RangeExchange,
    Schema,
    SortKey,
    Stream,
)
from cudf_polars.lower.ranges import boundary_frame, destination
from cudf_polars.plan.columns import keep_columns

__all__ = ["SAMPLE_ROWS", "OrderedExchanges", "Rows", "common_boundaries", "looked_at"]

# Rows of a batch that go into the sample for a sort's boundaries; of all rows in one frame, so many for each rank.
SAMPLE_ROWS = 64
_RANK = "__rr_rank"
"""The column (UInt32) that says whose summary a row is."""
_FAILED = 2**64 - 1
"""Stands for the number of rows of a rank that could not read them."""


class Rows(Protocol):
    """What runs the inputs of these exchanges and moves their rows: the executor."""

    plan: PartitionPlan
    brake: Brake
    paths: Paths

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""

    @property
    def on_cpu(self) -> bool:
        """Whether Polars runs the fragments."""

    def prepare(self, stream: Stream) -> None:
        """Run every exchange under a stream."""

    def kept(
        self, stream: Stream, look: Callable[[pl.DataFrame], None] | None = None
    ) -> tuple[pl.LazyFrame, int]:
        """Run a fragment to its end; return its rows on this rank and how many there are."""

    def taken_back(self, stream: Stream) -> Local | None:
        """Drop what was read of a fragment and return the step that reads it, to run again; None if it stays."""

    def passing(
        self, stream: Local, step: Callable[[pl.LazyFrame], pl.LazyFrame], schema: Schema
    ) -> Iterator[pl.DataFrame]:
        """Yield this rank's rows of a step that can be run again, after ``step`` was applied to them."""

    def scatter_batches(
        self, batches: Iterator[pl.DataFrame], schema: Schema, target: pl.Expr | None = None
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that its column ``DESTINATION`` names; return this rank's partitions.

        Where the rows do not have the column, ``target`` computes it batch by batch.
        """

    def scatter(
        self, frame: pl.LazyFrame, schema: Schema, *, ordered: bool, target: pl.Expr | None = None
    ) -> Sequence[ArrowStream]:
        """Do the same with the rows of a query."""

    def batches(self, frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
        """Run a lazy frame and yield its rows in their order."""

    def batches_of(self, stream: Stream) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows on this rank."""

    def stored(self, frame: pl.DataFrame, schema: Schema) -> Source:
        """Put the rows of a frame into the store."""

    def everywhere(self, stream: Stream) -> pl.DataFrame:
        """Run a fragment and return its rows on all ranks."""

    def to_all(self, frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        """Give every rank the rows of each rank's ``frame``."""

    def allgather_bytes(self, value: bytes) -> list[bytes]:
        """Give every rank each rank's ``value``."""


class OrderedExchanges:
    """Runs these exchanges for an executor; all ranks run the same in the same order.

    The executor keeps none: in a cycle, what it holds of the ranks' memory would stay until Python looks for cycles.
    """

    def __init__(self, executor: Rows) -> None:
        self._executor = executor

    def range_exchange(self, stream: RangeExchange) -> StreamRows:
        """Split all rows by ranges of their keys, of about equal numbers of rows."""
        if len(stream.inputs) > 1:
            return self._by_boundaries(stream)
        rows_of_batch = SAMPLE_ROWS * (self._executor.nranks if self._executor.plan.count == 1 else 1)
        sample = KeySample(stream.keys, rows_of_batch)
        (below,) = stream.inputs
        keys = {key.column: stream.schema[key.column] for key in stream.keys}
        source = looked_at(self._executor, below, keys, sample.look)
        sent = addressed(stream.schema)
        boundaries = common_boundaries(self._executor, sample.rows(keys), stream.keys)
        target = self._destination(stream, boundaries).alias(DESTINATION)
        if isinstance(source, pl.LazyFrame):
            return partitioned(self._scatter(stream, source, target), schema=sent)
        if self._executor.on_cpu:
            rows_of = self._executor.passing(source, lambda rows: rows, stream.schema)
            moved = self._executor.scatter_batches(rows_of, stream.schema, target)
        else:
            addressed_rows = self._executor.passing(source, lambda rows: rows.with_columns(target), sent)
            moved = self._executor.scatter_batches(addressed_rows, stream.schema)
        return partitioned(moved, schema=sent)

    def _scatter(self, stream: RangeExchange, rows: pl.LazyFrame, target: pl.Expr) -> Sequence[ArrowStream]:
        """Send each row to its range, which ``target`` computes.

        A GPU computes it with the query. Polars' streaming engine would read on while it searches, so that 80 MiB of
        24-byte rows wait for it: a CPU computes it batch by batch.
        """
        ordered = stream.ordered
        if self._executor.on_cpu:
            return self._executor.scatter(rows, stream.schema, ordered=ordered, target=target)
        return self._executor.scatter(rows.with_columns(target), stream.schema, ordered=ordered)

    def _destination(self, stream: RangeExchange, boundaries: pl.DataFrame) -> pl.Expr:
        return destination(stream.keys, boundaries, stream.schema, by_search=self._executor.on_cpu)

    def _by_boundaries(self, stream: RangeExchange) -> StreamRows:
        """Split all rows by ranges of their keys between the rows of the second input; none move if none have to."""
        rows_stream, boundaries_stream = stream.inputs
        boundaries = self._executor.everywhere(boundaries_stream)
        rows, height = self._executor.kept(rows_stream)
        target = self._destination(stream, boundaries)
        stays = rows.select((target == self._executor.rank).all()).collect(engine="streaming").item()
        if all(value == b"stays" for value in self._executor.allgather_bytes(b"stays" if stays else b"")):
            return StreamRows(lazy=rows, height=height)
        moved = self._scatter(stream, rows, target.alias(DESTINATION))
        return partitioned(moved, schema=addressed(stream.schema))

    def _counts(self, rows: int) -> list[int]:
        return [
            int(struct.unpack("<Q", value)[0])
            for value in self._executor.allgather_bytes(struct.pack("<Q", rows))
        ]

    def global_slice(self, stream: GlobalSlice) -> StreamRows:
        """Take a slice of the rows of all ranks, in rank order."""
        rows, counts = self._rows_up_to(stream)
        height = counts[self._executor.rank]
        before, total = sum(counts[: self._executor.rank]), sum(counts)
        start = stream.offset if stream.offset >= 0 else total + stream.offset
        stop = total if stream.length is None else min(total, start + stream.length)
        start = max(0, start)
        low = min(max(start - before, 0), height)
        high = min(max(stop - before, low), height)
        return StreamRows(lazy=rows.slice(low, high - low), height=high - low)

    def _rows_up_to(self, stream: GlobalSlice) -> tuple[pl.LazyFrame, list[int]]:
        """Return the rows of a slice's input on this rank, and how many each rank has.

        Polars reads no further than the slice: what it does not read cannot fail. So the error of a rank counts only if
        the ranks before it have too few rows.
        """
        (below,) = stream.inputs
        rows, height, error = self._kept_or_failed(below)
        if error is not None and (stream.offset < 0 or stream.length is None):
            raise error
        counts = self._counts(height)
        if _FAILED in counts:
            first = counts.index(_FAILED)
            needed = stream.offset + (stream.length or 0)
            if error is not None and sum(counts[:first]) < needed:
                raise error
            # Where they are needed, the ranks that failed say so to all; elsewhere these rows are left out.
            counts = [*counts[:first], *[0] * (self._executor.nranks - first)]
        return rows, counts

    def _kept_or_failed(self, stream: Stream) -> tuple[pl.LazyFrame, int, pl.exceptions.PolarsError | None]:
        """Return the rows of a fragment on this rank, how many there are, and what it has raised in place of them."""
        self._executor.prepare(stream)
        try:
            rows, height = self._executor.kept(stream)
        except pl.exceptions.PolarsError as error:
            return pl.LazyFrame(schema=dict(stream.schema)), _FAILED, error
        return rows, height, None

    def global_row_index(self, stream: GlobalRowIndex) -> StreamRows:
        """Number the rows of all ranks, in rank order.

        Rows of a rank that could not read them fail where they are needed: a slice may take those before them only.
        """
        rows, height, error = self._kept_or_failed(stream.inputs[0])
        counts = self._counts(height)
        if error is not None:
            return StreamRows(lazy=scan_batches(_raise(error), stream.schema), height=1)
        # Behind rows that failed the numbers are not right: who needs those rows needs the ones before them, too.
        before = sum(count for count in counts[: self._executor.rank] if count != _FAILED)
        numbered = rows.with_row_index(stream.name, stream.offset + before)
        return StreamRows(lazy=keep_columns(numbered, stream.schema), height=height)

    def carried(self, stream: Carried) -> StreamRows:
        """Summarize the rows of this rank while they pass, and compute over them with what the others say of theirs.

        Where memory is short, a chunk of the rows is to the others what a rank is: Polars holds all rows for most of
        what needs those around a row.
        """
        plan = self._executor.plan
        chunks = Summaries(stream, plan.chunk_bytes if plan.count > 1 else math.inf)
        rows, height = self._executor.kept(stream.inputs[0], chunks.look)
        parts = chunks.finish()
        mine = merged(stream, [part.summary for part in parts])
        numbered = mine.with_columns(pl.lit(self._executor.rank, dtype=pl.UInt32).alias(_RANK))
        gathered = self._executor.to_all(numbered, dict(numbered.schema))
        before, behind = (
            merged(stream, [gathered.filter(chosen).drop(_RANK)])
            for chosen in (pl.col(_RANK) < self._executor.rank, pl.col(_RANK) > self._executor.rank)
        )
        if len(parts) > 1:
            self._executor.paths.took(paths.CARRIED)
            made = self._carried_by_chunks(stream, rows, parts, before, behind)
            first = next(made, pl.DataFrame(schema=dict(stream.schema)))
            # Polars gives other types than it plans now and then.
            schema = dict(first.schema)
            every = (conform(batch, schema) for batch in itertools.chain((first,), made))
            return StreamRows(lazy=scan_batches(every, schema), height=height)
        lazy = stream.apply(rows, before, behind)
        return StreamRows(lazy=keep_columns(lazy, stream.schema), height=height)

    def _carried_by_chunks(
        self,
        stream: Carried,
        rows: pl.LazyFrame,
        parts: list[Summarized],
        before: pl.DataFrame,
        behind: pl.DataFrame,
    ) -> Iterator[pl.DataFrame]:
        following = [behind]
        for part in parts[:0:-1]:
            following.append(merged(stream, [part.summary, following[-1]]))
        batches = self._executor.batches(rows)
        for part, chunk in zip(parts, cut(batches, [part.rows for part in parts]), strict=True):
            lazy = keep_columns(stream.apply(chunk.lazy(), before, following.pop()), stream.schema)
            del chunk
            for batch in self._executor.batches(lazy):
                yield batch
                del batch  # or it would stay until the next one has been made
            before = merged(stream, [before, part.summary])

    def ordered_concat(self, stream: OrderedConcat) -> StreamRows:
        """Put inputs one after the other over all ranks, in equal parts."""
        kept = [self._executor.kept(child) for child in stream.inputs]
        counts = [self._counts(height) for _, height in kept]
        total, nranks = sum(map(sum, counts)), self._executor.nranks
        bounds = [total * rank // nranks for rank in range(nranks + 1)]
        start, parts = 0, []
        for (rows, _), heights in zip(kept, counts, strict=True):
            first = start + sum(heights[: self._executor.rank])
            start += sum(heights)
            parts.append(self._by_position(rows, first, bounds, stream.schema))
        return partitioned(*parts, schema=addressed(stream.schema))

    def position_exchange(self, stream: PositionExchange) -> StreamRows:
        """Redistribute rows by their global position; none move if all ranks have those of their ranges."""
        rows, height = self._executor.kept(stream.inputs[0])
        counts = self._counts(height)
        ends = list(itertools.accumulate(counts, initial=0))
        if self._executor.plan.count == 1 and all(
            not count or (low <= start and start + count <= high)
            for count, start, (low, high) in zip(
                counts, ends, itertools.pairwise(stream.bounds), strict=False
            )
        ):
            return StreamRows(lazy=rows, height=height)
        first = ends[self._executor.rank]
        if self._executor.plan.count == 1:
            return self._around_own_rows(stream, rows, first, height, sum(counts))
        moved = self._by_position(rows, first, stream.bounds, stream.schema)
        return partitioned(moved, schema=addressed(stream.schema))

    def _around_own_rows(
        self, stream: PositionExchange, rows: pl.LazyFrame, first: int, height: int, total: int
    ) -> StreamRows:
        """Send rows that are in other ranks' ranges, and put those of others before and behind the rows that stay."""
        low, high = stream.bounds[self._executor.rank : self._executor.rank + 2]
        start = min(max(low - first, 0), height)
        stop = min(max(high - first, start), height)
        to_others = ((rows.slice(stop), first + stop), (rows.slice(0, start), first))
        received = []
        for part, position in to_others:
            (moved,) = self._by_position(part, position, stream.bounds, stream.schema)
            schema = addressed(stream.schema)
            came = scan_stream(moved, schema, brake=self._executor.brake)
            received.append(keep_columns(came, stream.schema))
        # Ranks before this one send to it what follows their own, and so on.
        before, behind = received
        lazy = pl.concat([before, rows.slice(start, stop - start), behind])
        return StreamRows(lazy=lazy, height=min(high, total) - min(low, total))

    def _by_position(
        self, rows: pl.LazyFrame, first: int, bounds: Sequence[int], schema: Schema
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition of its global position, which is ``first`` for the first one.

        Parameters
        ----------
        bounds
            The first position of each rank's range, and how many positions there are.
        """
        count = self._executor.plan.count
        # The partitions of a rank split its range evenly; those of short ranges may have no rows.
        share = max(1, *(math.ceil((high - low) / count) for low, high in itertools.pairwise(bounds)))

        def target(start: int) -> pl.Expr:
            position = pl.int_range(pl.len(), dtype=pl.Int64) + start
            number, begin = pl.lit(0, dtype=pl.Int64), pl.lit(0, dtype=pl.Int64)
            for low, high in itertools.pairwise(bounds[:-1]):
                behind = (position >= high).cast(pl.Int64)
                number, begin = number + behind * count, begin + behind * (high - low)
            if count > 1:
                number = number + (position - begin) // share
            return number.cast(pl.UInt32).alias(DESTINATION)

        def sent() -> Iterator[pl.DataFrame]:
            # Numbered batch by batch: for int_range(len()) over all rows, Polars holds them all.
            start = first
            for batch in self._executor.batches(rows):
                yield batch.with_columns(target(start))
                start += batch.height
                del batch  # or it would stay until the next one has been made

        return self._executor.scatter_batches(sent(), schema)


def looked_at(
    executor: Rows, below: Stream, keys: Schema, look: Callable[[pl.DataFrame], None]
) -> Local | pl.LazyFrame:
    """Let ``look`` see all rows of a fragment on this rank, or only their keys.

    Returns
    -------
    The rows, to be read once; or, where only the keys were read, the step that reads the rows.
    """
    source = executor.taken_back(below)
    if source is None:
        rows, _ = executor.kept(below, look)
        return rows
    for batch in executor.passing(source, lambda rows: rows.select(list(keys)), keys):
        look(batch)
    return source


def common_boundaries(executor: Rows, sample: pl.DataFrame, keys: tuple[SortKey, ...]) -> pl.DataFrame:
    """Return at most ``nranks * partitions - 1`` rows of key values that split all ranks' rows into equal parts."""
    buffer = io.BytesIO()
    sample.write_ipc(buffer)
    samples = [pl.read_ipc(io.BytesIO(value)) for value in executor.allgather_bytes(buffer.getvalue())]
    return boundary_frame(pl.concat(samples), keys, WEIGHT, executor.nranks * executor.plan.count)


def _raise(error: pl.exceptions.PolarsError) -> Iterator[pl.DataFrame]:
    raise error
    yield pl.DataFrame()

"""Runs the streams of a physical plan on this rank: fragments by a compute device, exchanges by a transport.

All ranks run the same streams in the same order, so that their collectives meet. A fragment is a lazy frame that
the compute device runs (:mod:`cudf_polars.execute.fragments`): its sources are this rank's share of the files or the
Arrow stream of an exchange, and its output is pulled, batch by batch, by the transport. Where the rows of a rank are
split into partitions, a fragment runs once for each of them. Only what must be materialized (a side whose size decides
a join) becomes a data frame; without partitions, so does the input of a sort.
"""

from __future__ import annotations

import io
import itertools
import math
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import polars as pl
from rapidsmpf.streaming.batch_stream import BatchStream

from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.errors import failure_of_rank
from cudf_polars.execute.fragments import ComputeDevice
from cudf_polars.execute.measured import Measured, Size
from cudf_polars.execute.rows import WEIGHT, KeySample, StreamRows, chunks, concatenated, partitioned
from cudf_polars.execute.streams import (
    Brake,
    RowCount,
    conform,
    export_frame,
    read_stream,
    scan_batches,
    scan_stream,
)
from cudf_polars.execute.transport import ArrowStream, Transport
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import (
    Broadcast,
    CheckedOrder,
    Gather,
    GlobalRowIndex,
    GlobalSlice,
    Local,
    Materialize,
    OrderedConcat,
    RangeExchange,
    Schema,
    Shuffle,
    SortKey,
    Stream,
    WithScalars,
    walk,
)
from cudf_polars.lower.ranges import boundary_frame, destination
from cudf_polars.plan.columns import keep_columns

__all__ = ["Executor"]

T = TypeVar("T")

# Rows of a batch that go into the sample for a sort's boundaries; of all rows in one frame, so many for each rank.
_SAMPLE_ROWS = 64
_DESTINATION = "__rr_destination"


@dataclass
class _Fragment:
    """A part of the query that needs no other rank, over what is on this rank.

    Attributes
    ----------
    inputs
        What its sources give, as it runs.
    """

    frame: pl.LazyFrame
    inputs: list[RowCount]

    def had_no_rows(self) -> bool:
        """Whether all sources were read to their ends and had no row."""
        return bool(self.inputs) and all(count.complete and not count.rows for count in self.inputs)


class Executor:
    """Runs one query's streams on this rank.

    Parameters
    ----------
    transport
        Joins the ranks; the executor numbers its operations from ``first_op``.
    optimizations
        The user's optimisation flags, used for every fragment.
    device
        What runs the fragments; ``None``: the CPU.
    partitions
        Number of partitions into which exchanges by key split the rows of each rank. What follows an exchange runs
        over one partition after the other, while the others may be spilled.
    chunk_bytes
        How many bytes of rows a step that may be done over any rows takes at a time, if there are several partitions.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        optimizations: pl.QueryOptFlags,
        device: ComputeDevice | None = None,
        partitions: int = 1,
        chunk_bytes: int = 64 << 20,
        first_op: int = 0,
    ) -> None:
        self.measured: dict[Stream, Measured] = {}
        self.brake = Brake()
        self._transport = transport
        self.partitions = partitions
        self._chunk_bytes = chunk_bytes
        self._optimizations = optimizations
        self._device = CpuDevice() if device is None else device
        self._ops = itertools.count(first_op)
        self._rows: dict[Stream, StreamRows] = {}
        self._done: set[Stream] = set()
        self._failed: dict[Stream, BaseException] = {}
        self._ended: set[Stream] = set()

    # -- what the planner and the engine ask for ------------------------------------------------------------

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self._transport.nranks

    def run_and_measure(self, materialized: Materialize, limit: int | None) -> Size:
        """Run ``materialized`` until it ends or some rank has more than ``limit`` bytes, and sum over the ranks.

        Parameters
        ----------
        materialized
            Its rows stay on this rank and are read later by what the caller builds on it.
        limit
            Bytes; ``None`` reads to the end.
        """
        self._prepare(materialized)
        rows = self._rows[materialized]
        start = time.perf_counter()
        if limit is None:
            self._complete(rows)
        elif rows.rest is not None:
            self._read_up_to(rows, limit)
        self.measured[materialized].seconds += time.perf_counter() - start
        assert rows.frame is not None
        message = struct.pack("<QQ?", rows.frame.height, rows.frame.estimated_size(), rows.rest is None)
        sizes = [struct.unpack("<QQ?", value) for value in self.allgather_bytes(message)]
        size = Size(sum(s[0] for s in sizes), sum(s[1] for s in sizes), all(s[2] for s in sizes))
        rows.rest_anywhere = not size.complete
        if rows.rest is None:
            self.measured[materialized].counted(rows.frame)
        return size

    def allgather_bytes(self, value: bytes) -> list[bytes]:
        """Give every rank each rank's ``value``."""
        return self._transport.allgather_bytes(value, op=next(self._ops))

    def result(self, root: Stream) -> pl.DataFrame:
        """Run ``root`` and return this rank's part of the answer.

        The parts are disjoint: what is the same on all ranks is returned by rank 0 only.
        """
        if root.partitioning.distribution is Distribution.REPLICATED and self._transport.rank != 0:
            self._prepare(root)
            return pl.DataFrame(schema=dict(root.schema))
        return self._collect(root)

    def result_batches(self, root: Stream) -> Iterator[pl.DataFrame]:
        """Return this rank's part of the answer, made while it is read, with the types that Polars gives it."""
        self._prepare(root)
        if root.partitioning.distribution is Distribution.REPLICATED and self._transport.rank != 0:
            return iter(())
        return self._batches(root, planned=False)

    # -- running ---------------------------------------------------------------------------------------------

    def _prepare(self, stream: Stream) -> None:
        """Run every exchange under ``stream``, inputs first, and ``stream`` itself if it is one."""
        if stream in self._done:
            return
        for child in stream.inputs:
            self._prepare(child)
        self._done.add(stream)
        if isinstance(stream, Local):
            return
        measured = self.measured[stream] = Measured()
        start = time.perf_counter()
        rows = self._rows[stream] = self._run(stream)
        measured.seconds += time.perf_counter() - start
        if rows.frame is not None and rows.rest is None:
            measured.counted(rows.frame)

    def _run(self, stream: Stream) -> StreamRows:
        transport = self._transport
        match stream:
            case Materialize():
                return self._materialize(stream)
            case Shuffle():
                keys, partitions = stream.keys, self.partitions
                return self._send(
                    stream.inputs[0],
                    lambda source, op: transport.shuffle(source, keys, op=op, partitions=partitions),
                    in_parts=True,
                )
            case Broadcast():
                rows = self._send(stream.inputs[0], lambda source, op: [transport.allgather(source, op=op)])
                # It is small, and Polars plans a join better around a frame than around a stream.
                return StreamRows(frame=read_stream(rows.partitions[0][0], stream.schema))
            case Gather():
                return self._send(stream.inputs[0], lambda source, op: [transport.gather(source, op=op)])
            case RangeExchange():
                return self._range_exchange(stream)
            case GlobalSlice():
                return self._global_slice(stream)
            case GlobalRowIndex():
                return self._global_row_index(stream)
            case OrderedConcat():
                return self._ordered_concat(stream)
            case WithScalars():
                return StreamRows(frame=self._scalars(stream))
            case CheckedOrder():
                self._check_order(stream)
                return StreamRows()
            case _:
                raise TypeError(f"the executor does not know the stream {type(stream).__name__}")

    def _is_absent(self, stream: Stream) -> bool:
        """Whether this rank has no rows of ``stream`` by its distribution."""
        return stream.partitioning.distribution is Distribution.SINGLE and self._transport.rank != 0

    # -- fragments, whole or one partition after the other ---------------------------------------------------

    def _pieces(self, stream: Stream) -> int:
        """Return in how many partitions the fragment that ends in ``stream`` runs; everything under it was prepared.

        One partition of a rank is to the plan what a rank is: its steps need no row of another. So a fragment runs by
        partitions if all that it reads is there by partitions, or is the same for all.
        """
        return self.partitions if self._is_partitioned(stream, {}) else 1

    def _is_partitioned(self, stream: Stream, memo: dict[Stream, bool | None]) -> bool | None:
        """Whether the rows are there by partitions; ``None`` if each partition can have all of them."""
        if stream not in memo:
            memo[stream] = self._has_partitions(stream, memo)
        return memo[stream]

    def _has_partitions(self, stream: Stream, memo: dict[Stream, bool | None]) -> bool | None:
        if self.partitions == 1 or stream.partitioning.distribution is Distribution.SINGLE:
            return False
        if isinstance(stream, Shuffle | RangeExchange | OrderedConcat):
            return True
        replicated = stream.partitioning.distribution is Distribution.REPLICATED
        match stream:
            case Local(inputs=()):
                return None if replicated else False
            case Local():
                below = {self._is_partitioned(child, memo) for child in stream.inputs}
                return False if False in below else (True if True in below else None)
            case WithScalars() | CheckedOrder():
                return self._is_partitioned(stream.inputs[0], memo)
            case _:
                rows = self._rows[stream]
                return None if replicated and rows.is_frame() else False

    def _lazy(
        self,
        stream: Stream,
        memo: dict[Stream, pl.LazyFrame],
        inputs: list[RowCount],
        piece: int | None = None,
    ) -> pl.LazyFrame:
        """Return the fragment that ends in ``stream``, or a piece of it; everything under it was prepared."""
        if (known := memo.get(stream)) is not None:
            return known
        if self._is_absent(stream):
            # A step over no rows may still make some (a global sum gives one row): rank 0 alone does it.
            frame = self._noted(pl.DataFrame(schema=dict(stream.schema)), inputs)
        elif isinstance(stream, Local):
            if not stream.inputs:
                inputs.append(RowCount(1))  # files: how many rows, nobody knows
            below = [self._lazy(child, memo, inputs, piece) for child in stream.inputs]
            rank = self._transport.rank
            frame = stream.build(below, rank if piece is None else rank * self.partitions + piece)
        elif isinstance(stream, WithScalars):
            scalars = self._rows[stream].frame
            assert scalars is not None
            main = self._lazy(stream.inputs[0], memo, inputs, piece)
            frame = main.with_columns(_literal(column) for column in scalars)
            frame = keep_columns(frame, stream.schema)
        elif isinstance(stream, CheckedOrder):
            frame = self._lazy(stream.inputs[0], memo, inputs, piece)
        else:
            frame = self._source(stream, inputs, piece)
        memo[stream] = frame
        return frame

    def _noted(self, frame: pl.DataFrame, inputs: list[RowCount]) -> pl.LazyFrame:
        inputs.append(RowCount(frame.height, complete=True))
        return frame.lazy()

    def _source(self, stream: Stream, inputs: list[RowCount], piece: int | None) -> pl.LazyFrame:
        rows = self._rows[stream]
        if isinstance(stream, Materialize) and stream.shared:
            assert rows.frame is not None
            return self._noted(rows.frame, inputs)
        # What is there once belongs to its reader; the plan holds what is read more often.
        if piece is None or piece == self.partitions - 1:
            del self._rows[stream]
        if piece is None:
            sources = [source for partition in rows.partitions for source in partition]
        elif rows.partitions:
            sources, rows.partitions[piece] = rows.partitions[piece], []
        else:
            sources = []
        parts = [] if rows.frame is None else [self._noted(rows.frame, inputs)]
        if rows.lazy is not None:
            inputs.append(RowCount(rows.height, complete=True))
            parts.append(rows.lazy)
        for source in sources:
            inputs.append(RowCount())
            parts.append(scan_stream(source, rows.schema or stream.schema, inputs[-1], self.brake))
        if rows.rest is not None:
            inputs.append(RowCount())
            parts.append(scan_batches(rows.rest, stream.schema, inputs[-1]))
        frame = parts[0] if len(parts) == 1 else pl.concat(parts, how="vertical")
        return keep_columns(frame, stream.schema) if rows.schema else frame

    def _fragments(self, stream: Stream) -> Iterator[_Fragment]:
        """Yield the fragment that ends in ``stream``, in as many pieces as it has; run each before the next."""
        self._prepare(stream)
        pieces = self._pieces(stream)
        for piece in range(pieces):
            inputs: list[RowCount] = []
            yield _Fragment(self._lazy(stream, {}, inputs, None if pieces == 1 else piece), inputs)

    def _collect(self, stream: Stream) -> pl.DataFrame:
        """Run a fragment and return its rows on this rank, with the types that Polars gave them."""
        self._prepare(stream)
        if self._is_absent(stream):
            return pl.DataFrame(schema=dict(stream.schema))
        if isinstance(stream, Materialize):
            rows = self._rows[stream]
            self._complete(rows)
            assert rows.frame is not None
            return rows.frame
        start = time.perf_counter()
        frames = []
        for fragment in self._fragments(stream):
            try:
                frame = self._device.collect(fragment.frame, self._optimizations)
                self._ended.add(stream)
            except BaseException as error:
                if not self._failed_without_rows(stream, fragment, error):
                    raise
                frame = pl.DataFrame(schema=dict(stream.schema))
            frames.append(frame)
        frame = concatenated(frames)
        measured = self.measured.setdefault(stream, Measured())
        measured.seconds += time.perf_counter() - start
        measured.counted(frame)
        return frame

    def _batches(self, stream: Stream, *, planned: bool = True) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows on this rank, with the types of the plan or those of Polars."""
        if self._is_absent(stream):
            return
        if isinstance(stream, Materialize):
            yield from self._materialized_batches(stream)
            return
        if self.partitions > 1 and isinstance(stream, Local) and stream.of_any_rows:
            yield from self._by_chunks(stream)
            return
        for fragment in self._fragments(stream):
            batches = self._device.batches(
                fragment.frame, self._optimizations, ordered=stream.ordered or not planned
            )
            try:
                for batch in batches:
                    yield conform(batch, stream.schema) if planned else batch
                self._ended.add(stream)
            except GeneratorExit:
                raise
            except BaseException as error:
                if not self._failed_without_rows(stream, fragment, error):
                    raise

    def _materialized_batches(self, stream: Materialize) -> Iterator[pl.DataFrame]:
        self._prepare(stream)
        rows = self._rows[stream] if stream.shared else self._rows.pop(stream)
        assert rows.frame is not None
        frame, rows_left = rows.frame, rows.rest
        if not stream.shared:
            rows.frame = None
        yield conform(frame, stream.schema)
        del frame
        yield from rows_left or ()

    def _by_chunks(self, stream: Local) -> Iterator[pl.DataFrame]:
        """Run a step that may be done over any rows in chunks of its input, and yield the result of each chunk."""
        (child,) = stream.inputs
        self._prepare(child)
        measured = self.measured.setdefault(stream, Measured())
        for chunk in chunks(self._batches(child), self._chunk_bytes):
            lf = stream.build([chunk.lazy()], self._transport.rank)
            frame = self._device.collect(lf, self._optimizations)
            measured.added(frame)
            yield conform(frame, stream.schema)

    def _failed_without_rows(self, stream: Stream, fragment: _Fragment, error: BaseException) -> bool:
        """Whether a fragment failed because this rank has no rows for it, so that it has no result either.

        A user's function, and Polars now and then, fails on an empty part of a table that is not empty. Where the parts
        of all ranks are empty, the error stands: see :meth:`failures`.
        """
        excused = (
            isinstance(error, Exception | pl.exceptions.PanicException)
            and failure_of_rank(error) is None
            and stream.partitioning.distribution not in (Distribution.SINGLE, Distribution.REPLICATED)
            and fragment.had_no_rows()
        )
        if excused:
            self._failed.setdefault(stream, error)
        return excused

    def failures(self, root: Stream) -> dict[int, BaseException]:
        """Return, by their places in the plan, the fragments that failed without rows and did not end otherwise."""
        return {
            place: self._failed[stream]
            for place, stream in enumerate(walk(root))
            if stream in self._failed and stream not in self._ended
        }

    def _materialize(self, stream: Materialize) -> StreamRows:
        (child,) = stream.inputs
        if stream.shared:
            return StreamRows(frame=conform(self._collect(child), stream.schema))
        rows = StreamRows(frame=pl.DataFrame(schema=dict(stream.schema)))
        if not self._is_absent(child):
            # What it reads must be there before the next step of this query asks for rows.
            self._prepare(child)
            rows.rest = self._batches(child)
        return rows

    def _read_up_to(self, rows: StreamRows, limit: int) -> None:
        assert rows.rest is not None
        frames, nbytes = [], 0
        while nbytes <= limit:
            batch = next(rows.rest, None)
            if batch is None:
                rows.rest = None
                break
            frames.append(batch)
            nbytes += int(batch.estimated_size())
        if frames:
            rows.frame = pl.concat(frames, rechunk=False)

    def _complete(self, rows: StreamRows) -> None:
        if rows.rest is None:
            return
        assert rows.frame is not None
        rows.frame = pl.concat([rows.frame, *rows.rest], rechunk=False)
        rows.rest = None

    def _send(
        self,
        child: Stream,
        send: Callable[[ArrowStream, int], list[ArrowStream]],
        *,
        in_parts: bool = False,
    ) -> StreamRows:
        """Hand the output of ``child`` to a collective.

        A materialized input that is only partly read can be sent in two operations when the order does not matter.
        """
        rows = self._rows[child] if isinstance(child, Materialize) else None
        if rows is None or not (in_parts and rows.rest_anywhere):
            return partitioned(self._exchange(self._batches(child), child.schema, send))
        assert rows.frame is not None
        del self._rows[child]
        first = self._exchange(iter((rows.frame,)), child.schema, send)
        rows.frame = None
        return partitioned(first, self._exchange(rows.rest or iter(()), child.schema, send))

    def _exchange(
        self,
        batches: Iterator[pl.DataFrame],
        schema: Schema,
        send: Callable[[ArrowStream, int], list[ArrowStream]],
    ) -> list[ArrowStream]:
        """Hand batches to a collective."""
        return _handed_over(batches, schema, lambda source: send(source, next(self._ops)))

    # -- exchanges that look at the rows ---------------------------------------------------------------------

    def _scatter(self, frame: pl.LazyFrame, schema: Schema, *, ordered: bool) -> list[ArrowStream]:
        partitions = self.partitions
        addressed = {**schema, _DESTINATION: pl.UInt32()}
        batches = self._device.batches(frame, self._optimizations, ordered=ordered)
        return self._exchange(
            (conform(batch, addressed) for batch in batches),
            addressed,
            lambda source, op: self._transport.scatter(source, _DESTINATION, op=op, partitions=partitions),
        )

    def _kept(
        self, stream: Stream, look: Callable[[pl.DataFrame], None] | None = None
    ) -> tuple[pl.LazyFrame, int]:
        """Run a fragment to its end; return its rows on this rank, to be read once, and how many there are.

        Parameters
        ----------
        look
            Sees the rows pass.
        """
        if self.partitions == 1:
            frame = conform(self._collect(stream), stream.schema)
            if look is not None:
                look(frame)
            return frame.lazy(), frame.height

        def seen() -> Iterator[pl.DataFrame]:
            for batch in self._batches(stream):
                if look is not None:
                    look(batch)
                yield batch

        self._prepare(stream)
        rows, height = _handed_over(seen(), stream.schema, self._transport.keep)
        return scan_stream(rows, stream.schema, brake=self.brake), height

    def _range_exchange(self, stream: RangeExchange) -> StreamRows:
        rows_of_batch = _SAMPLE_ROWS * (self.nranks if self.partitions == 1 else 1)
        sample = KeySample(stream.keys, rows_of_batch)
        rows, _ = self._kept(stream.inputs[0], sample.look)
        boundaries = self._boundaries(sample.rows(stream.schema), stream.keys)
        target = destination(stream.keys, boundaries, stream.schema).alias(_DESTINATION)
        moved = self._scatter(rows.with_columns(target), stream.schema, ordered=stream.ordered)
        return partitioned(moved, schema={**stream.schema, _DESTINATION: pl.UInt32()})

    def _boundaries(self, sample: pl.DataFrame, keys: tuple[SortKey, ...]) -> pl.DataFrame:
        """Return at most ``nranks * partitions - 1`` rows of key values that split all ranks' rows into equal parts."""
        buffer = io.BytesIO()
        sample.write_ipc(buffer)
        samples = [pl.read_ipc(io.BytesIO(value)) for value in self.allgather_bytes(buffer.getvalue())]
        return boundary_frame(pl.concat(samples), keys, WEIGHT, self.nranks * self.partitions)

    def _counts(self, rows: int) -> list[int]:
        return [int(struct.unpack("<Q", value)[0]) for value in self.allgather_bytes(struct.pack("<Q", rows))]

    def _global_slice(self, stream: GlobalSlice) -> StreamRows:
        rows, height = self._kept(stream.inputs[0])
        counts = self._counts(height)
        before, total = sum(counts[: self._transport.rank]), sum(counts)
        start = stream.offset if stream.offset >= 0 else total + stream.offset
        stop = total if stream.length is None else min(total, start + stream.length)
        start = max(0, start)
        low = min(max(start - before, 0), height)
        high = min(max(stop - before, low), height)
        return StreamRows(lazy=rows.slice(low, high - low), height=high - low)

    def _global_row_index(self, stream: GlobalRowIndex) -> StreamRows:
        rows, height = self._kept(stream.inputs[0])
        before = sum(self._counts(height)[: self._transport.rank])
        numbered = rows.with_row_index(stream.name, stream.offset + before)
        return StreamRows(lazy=keep_columns(numbered, stream.schema), height=height)

    def _ordered_concat(self, stream: OrderedConcat) -> StreamRows:
        kept = [self._kept(child) for child in stream.inputs]
        counts = [self._counts(height) for _, height in kept]
        total = sum(map(sum, counts))
        share = max(1, math.ceil(total / (self.nranks * self.partitions)))
        start, parts = 0, []
        for (rows, _), heights in zip(kept, counts, strict=True):
            first = start + sum(heights[: self._transport.rank])
            start += sum(heights)
            target = ((pl.int_range(pl.len(), dtype=pl.UInt64) + first) // share).cast(pl.UInt32)
            addressed = rows.with_columns(target.alias(_DESTINATION))
            parts.append(self._scatter(addressed, stream.schema, ordered=True))
        return partitioned(*parts, schema={**stream.schema, _DESTINATION: pl.UInt32()})

    def _scalars(self, stream: WithScalars) -> pl.DataFrame:
        main, side = stream.inputs
        frame = self._collect(side)
        if side.partitioning.distribution is not Distribution.REPLICATED:
            (everywhere,) = self._exchange(
                iter((conform(frame, side.schema),)),
                side.schema,
                lambda source, op: [self._transport.allgather(source, op=op)],
            )
            frame = read_stream(everywhere, side.schema)
        if frame.height != 1:
            raise AssertionError(f"a scalar sub-result has {frame.height} rows")
        return frame.select(name for name in frame.columns if name not in main.schema)

    def _check_order(self, stream: CheckedOrder) -> None:
        """Raise what Polars raises of an as-of join over unsorted rows, on all ranks, unless the parts are in order."""
        ends = self._collect(stream.inputs[1]).lazy()
        (key,) = stream.inputs[1].schema
        ends.join_asof(ends.head(0), on=key).collect()


def _handed_over(batches: Iterator[pl.DataFrame], schema: Schema, take: Callable[[ArrowStream], T]) -> T:
    """Let C++ take batches; what fails while they are made is raised as what it is."""
    source = BatchStream(pl.Schema(schema), batches, export_frame)
    try:
        return take(source)
    except BaseException:
        if source.error is not None:
            raise source.error from None
        raise


def _literal(column: pl.Series) -> pl.Expr:
    """Return the only value of ``column`` as a literal of the same name."""
    dtype = column.dtype
    if (dtype.is_numeric() and not dtype.is_decimal()) or dtype in (pl.String, pl.Boolean, pl.Date):
        return pl.lit(column.item(), dtype=dtype).alias(column.name)
    # Python has no exact value for the rest (nanoseconds, categories): a series of one row is broadcast.
    return pl.lit(column).alias(column.name)

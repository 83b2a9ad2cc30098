"""Runs the streams of a physical plan on this rank: fragments by a compute device, exchanges by a transport.

All ranks run the same streams in the same order, so that their collectives meet. A fragment is a lazy frame that the
compute device runs (:mod:`cudf_polars.execute.fragment_runs`): its sources are this rank's share of the files or the
Arrow stream of an exchange, and its output is pulled, batch by batch, by the transport. Where the rows of a rank are
split into partitions, a fragment runs once for each of them (:mod:`cudf_polars.execute.pieces`), and what has to wait
between two steps waits in the library's store, where it may be spilled. Without partitions it waits as a data frame.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.direct_groups import direct_groups
from cudf_polars.execute.division import Divider
from cudf_polars.execute.errors import name_step, not_sorted
from cudf_polars.execute.fragment_runs import FragmentRuns
from cudf_polars.execute.fragments import ComputeDevice, DeviceOfQuery, Reading
from cudf_polars.execute.measured import Measured
from cudf_polars.execute.memory_watch import MemoryWatch, Needs, Turn
from cudf_polars.execute.next_exchange import NextExchange, bytes_ahead
from cudf_polars.execute.ordered import OrderedExchanges
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.paths import Paths
from cudf_polars.execute.pieces import Fragment, Fragments
from cudf_polars.execute.rows import (
    DESTINATION,
    Addressing,
    StreamRows,
    addressed,
    addressing,
    chunks,
    concatenated,
    detached,
    handed_over,
    memory_of,
    opened,
    partitioned,
    with_destination,
)
from cudf_polars.execute.sorted_ranges import SortedRanges
from cudf_polars.execute.streams import Brake, conform, read_stream, scan_stream, stream_batches
from cudf_polars.execute.transport import ArrowStream, Source, Transport
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import (
    Broadcast,
    Carried,
    CheckedOrder,
    Gather,
    GlobalRowIndex,
    GlobalSlice,
    Local,
    Materialize,
    NeighbourExchange,
    OrderedConcat,
    PositionExchange,
    RangeExchange,
    Schema,
    Shuffle,
    SortedExchange,
    Stream,
    WithScalars,
)
from cudf_polars.lower.ranges import range_of
from cudf_polars.lower.spreading import HeavyKeys

__all__ = ["Executor"]


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
    plan
        Into what the rows of each rank are split; ``None``: nothing is.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        optimizations: pl.QueryOptFlags,
        device: ComputeDevice | None = None,
        plan: PartitionPlan | None = None,
        first_op: int = 0,
    ) -> None:
        self.measured: dict[Stream, Measured] = {}
        self._needs = Needs()
        self._watch = MemoryWatch(self._needs.text)
        self.brake = Brake(self._watch.look)
        self.paths = Paths()
        self.plan = PartitionPlan() if plan is None else plan
        self._transport = transport
        self._optimizations = optimizations
        self._device = DeviceOfQuery(CpuDevice() if device is None else device)
        self._ops = itertools.count(first_op)
        self._rows: dict[Stream, StreamRows] = {}
        self._ranges: dict[SortedExchange, pl.DataFrame] = {}
        divider = Divider(transport, self._device, optimizations, self.plan, self.brake, self.paths)
        self._fragments = Fragments(divider, self._rows, self.measured)
        self._runs = FragmentRuns(self._device, optimizations)
        self._done: set[Stream] = set()
        self._ahead = bytes_ahead(self.plan, on_cpu=self.on_cpu)
        self._next = NextExchange(self._fragments, self._runs, self._done, self._ahead)
        self._running: Measured | None = None  # where what happens is counted

    # -- what the planner and the engine ask for ------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This rank."""
        return self._transport.rank

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self._transport.nranks

    @property
    def on_cpu(self) -> bool:
        """Whether Polars runs the fragments."""
        return self._device.is_cpu

    def rows_of(self, materialized: Materialize) -> StreamRows:
        """Return what there is of rows on this rank, once it was prepared."""
        return self._rows[materialized]

    def peeked(self, materialized: Materialize) -> Iterator[pl.DataFrame]:
        """Yield the rows of this rank that have been read; they stay."""
        rows = self._rows[materialized]
        if rows.frame is not None:
            yield rows.frame
        for sources in rows.partitions:
            for source in sources:
                yield from stream_batches(opened(source, last=False), materialized.schema, self.brake)

    def allgather_bytes(self, value: bytes) -> list[bytes]:
        """Give every rank each rank's ``value``."""
        return self._transport.allgather_bytes(value, op=next(self._ops))

    def allgather_rows(self, frame: pl.DataFrame) -> ArrowStream:
        """Give every rank the rows of all ranks."""
        return self._transport.allgather(frame, op=next(self._ops))

    def merge_bits(self, bits: bytearray) -> bytearray:
        """Give every rank the bits that are set on any."""
        return self._transport.merge_bits(bits, op=next(self._ops))

    def result(self, root: Stream) -> pl.DataFrame:
        """Run ``root`` and return this rank's part of the answer.

        The parts are disjoint: what is the same on all ranks is returned by rank 0 only.
        """
        if root.partitioning.distribution is Distribution.REPLICATED and self._transport.rank != 0:
            self.prepare(root)
            return pl.DataFrame(schema=dict(root.schema))
        return self._collect(root)

    def result_batches(self, root: Stream) -> Iterator[pl.DataFrame]:
        """Return this rank's part of the answer, made while it is read, with the types that Polars gives it."""
        self.prepare(root)
        if root.partitioning.distribution is Distribution.REPLICATED and self._transport.rank != 0:
            self.close()
            return iter(())
        return self._result_batches(root)

    def _result_batches(self, root: Stream) -> Iterator[pl.DataFrame]:
        try:
            with self.measuring(root):
                yield from self._counted(self._batches(root, planned=False))
        finally:
            self.close()

    def close(self) -> None:
        """End what still runs and drop the rows that were not read; what was measured stays. Idempotent."""
        self._next.close()
        self._device.close()
        self._rows.clear()

    def failures(self, root: Stream) -> dict[int, BaseException]:
        """Return the errors of fragments that failed because this rank has no rows for them, by place in the plan."""
        return self._runs.failures(root)

    # -- running ---------------------------------------------------------------------------------------------

    def prepare(self, stream: Stream) -> None:
        """Run every exchange under ``stream``, inputs first, and ``stream`` itself if it is one."""
        if stream in self._done:
            return
        for place, child in enumerate(stream.inputs, start=1):
            with self._next.to_follow(stream.inputs[place:]):
                self.prepare(child)
        self._done.add(stream)
        if isinstance(stream, Local):
            return
        self._next.begin()
        with self.measuring(stream) as measured:
            rows = self._rows[stream] = self._run(stream)
        if measured.rows is None and rows.rest is None:
            if rows.frame is not None:
                measured.counted(rows.frame.height, rows.frame.estimated_size())
            elif rows.lazy is not None:
                measured.rows = rows.height
        if self.plan.count > 1:
            self.paths.frames_held = max(self.paths.frames_held, self._frames_held())

    @contextmanager
    def measuring(self, stream: Stream) -> Iterator[Measured]:
        """Count what happens in this block as the stream's."""
        measured = self.measured.setdefault(stream, Measured())
        before = self._running, self._needs.step
        self._running, self._needs.step = measured, stream.label
        start, spilled = time.perf_counter(), self._transport.bytes_spilled
        try:
            yield measured
        except MemoryError as error:
            name_step(error, stream.label)
            raise
        finally:
            self._running, self._needs.step = before
            measured.seconds += time.perf_counter() - start
            measured.spilled += self._transport.bytes_spilled - spilled

    def _counted(self, batches: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Return batches that are counted, when they are made, as those of what runs now."""
        measured, turn = self._running, Turn()

        def counted() -> Iterator[pl.DataFrame]:
            for batch in batches:
                if measured is not None:
                    measured.added(batch)
                self._watch.look(turn)
                yield batch
                del batch  # or it would stay until the next one has been made

        return counted()

    def _fragments_of(self, stream: Stream) -> Iterator[Fragment]:
        """Yield the fragment that ends in ``stream`` in its pieces, which are counted as those of what runs."""
        for fragment in self._fragments.of(stream):
            self._runs_now(fragment)
            yield fragment

    def _runs_now(self, fragment: Fragment) -> None:
        """Count a fragment as one of what runs."""
        measured = self._running
        if measured is not None:
            measured.partitions += 1
            measured.lookups = max(measured.lookups, fragment.lookups)
        self._needs.partition = 0 if measured is None else measured.partitions
        self._needs.reading = fragment.nbytes

    def _frames_held(self) -> int:
        """Return how many frames wait for a step; one without columns takes no memory, nor do scalars."""
        return sum(
            rows.frame is not None and rows.frame.width > 0 and not isinstance(stream, WithScalars)
            for stream, rows in self._rows.items()
        )

    def _run(self, stream: Stream) -> StreamRows:
        transport = self._transport
        match stream:
            case Materialize():
                return self._materialize(stream)
            case Shuffle():
                return self._shuffle(stream)
            case Broadcast():
                rows = self._send(stream.inputs[0], lambda source, op: [transport.allgather(source, op=op)])
                (everywhere,) = rows.partitions[0]
                if self.plan.count == 1:
                    # It is small, and Polars plans a join better around a frame than around a stream.
                    return StreamRows(frame=read_stream(opened(everywhere, last=True), stream.schema))
                self.paths.took(paths.KEPT_EVERYWHERE)
                return StreamRows(partitions=[[transport.keep(opened(everywhere, last=True))]])
            case Gather():
                return self._send(stream.inputs[0], lambda source, op: [transport.gather(source, op=op)])
            case SortedExchange():
                return SortedRanges(self, self._ranges).own_ranges(stream)
            case NeighbourExchange():
                return SortedRanges(self, self._ranges).ranges_of_another(stream)
            case RangeExchange():
                return OrderedExchanges(self).range_exchange(stream)
            case GlobalSlice():
                return OrderedExchanges(self).global_slice(stream)
            case GlobalRowIndex():
                return OrderedExchanges(self).global_row_index(stream)
            case OrderedConcat():
                return OrderedExchanges(self).ordered_concat(stream)
            case PositionExchange():
                return OrderedExchanges(self).position_exchange(stream)
            case Carried():
                return OrderedExchanges(self).carried(stream)
            case WithScalars():
                return StreamRows(frame=self._scalars(stream))
            case CheckedOrder():
                self._check_order(stream)
                return StreamRows()
            case _:
                raise TypeError(f"the executor does not know the stream {type(stream).__name__}")

    def _shuffle(self, stream: Shuffle) -> StreamRows:
        """Send rows by the hash of their keys, or to the ranges that files are split into."""
        transport, keys = self._transport, stream.keys
        partitions = stream.partitions(self.nranks, self.plan.count)
        if stream.heavy is not None:
            self.paths.took(paths.SPREAD)
            target = _to_heavy_keys(stream.heavy, keys, self.nranks * partitions)
        elif stream.boundaries is not None:
            self.paths.took(paths.TO_RANGES)
            target = addressing(range_of(keys[0], stream.boundaries, stream.schema).alias(DESTINATION))
        else:
            return self._send(
                stream.inputs[0],
                lambda source, op: transport.shuffle(source, keys, op=op, partitions=partitions),
                in_parts=True,
            )
        return self._send(
            stream.inputs[0],
            lambda source, op: transport.scatter(source, DESTINATION, op=op, partitions=partitions),
            in_parts=True,
            target=target,
        )

    def _collect(self, stream: Stream) -> pl.DataFrame:
        """Run a fragment and return its rows on this rank, with the types that Polars gave them."""
        self.prepare(stream)
        if self._fragments.is_absent(stream):
            return pl.DataFrame(schema=dict(stream.schema))
        if isinstance(stream, Materialize):
            batches = list(self._materialized_batches(stream))
            return pl.concat([pl.DataFrame(schema=dict(stream.schema)), *batches], rechunk=False)
        frames: list[pl.DataFrame] = []
        with self.measuring(stream) as measured:
            try:
                for fragment in self._fragments_of(stream):
                    if frames and self._transport.memory_left < 0:
                        self._watch.require(self.nranks * fragment.nbytes)
                    frame = self._runs.collect(stream, fragment)
                    frames.append(detached(frame) if fragment.nbytes else frame)
                    self._needs.held += memory_of(frame)
                    del frame
                frame = concatenated(frames)
            finally:
                frames.clear()  # the traceback of an error keeps this list alive
                self._needs.held = 0
        measured.counted(frame.height, frame.estimated_size())
        return frame

    def _batches(self, stream: Stream, *, planned: bool = True, ahead: int = 0) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows on this rank, with the types of the plan or those of Polars.

        Up to ``ahead`` bytes of them may wait until they are asked for.
        """
        if self._fragments.is_absent(stream):
            return
        if isinstance(stream, Materialize):
            yield from self._materialized_batches(stream)
            return
        if self.plan.count > 1 and isinstance(stream, Local) and stream.of_any_rows:
            yield from self._by_chunks(stream)
            return
        self.prepare(stream)
        if (begun := self._next.take(stream)) is not None:
            self._runs_now(begun.fragment)
            yield from begun.rows
            return
        fragments = self._fragments_of(stream)
        if self._fragments.pieces(stream) >= self.plan.two_from:
            yield from self._runs.batches_of_all(
                stream, fragments, planned=planned, early_limit=self.plan.target
            )
            return
        for fragment in fragments:
            yield from self._runs.batches(stream, fragment, planned=planned, ahead=ahead)

    def _materialized_batches(self, stream: Materialize) -> Iterator[pl.DataFrame]:
        self.prepare(stream)
        rows = self._rows[stream] if stream.shared else self._rows.pop(stream)
        frame, sources, rest = rows.frame, rows.take_all(), rows.rest
        if not stream.shared:
            rows.frame = None
        if frame is not None:
            yield conform(frame, stream.schema)
        del frame
        while sources:
            source = opened(sources.pop(0), last=not stream.shared)
            yield from stream_batches(source, stream.schema, self.brake)
        yield from rest or ()

    def _by_chunks(self, stream: Local) -> Iterator[pl.DataFrame]:
        """Run a step that may be done over any rows in chunks of its input, and yield the result of each chunk."""
        (child,) = stream.inputs
        self.prepare(child)
        # The next chunk is read while this one is aggregated.
        batches = self._batches(child, ahead=self.plan.chunk_bytes // 2)
        for chunk in chunks(batches, self.plan.chunk_bytes):
            self.paths.took(paths.CHUNKS)
            frame = self._direct(stream, chunk)
            if frame is None:
                lf = stream.build([chunk.lazy()], self._transport.rank)
                frame = self._device.collect(lf, self._optimizations)
                del lf  # or it would stay until the next one is there
            del chunk
            yield conform(frame, stream.schema)

    def _direct(self, stream: Local, chunk: pl.DataFrame) -> pl.DataFrame | None:
        """Return the groups of a chunk of rows by direct addressing, where that is possible."""
        if stream.tallies is None or not self._device.is_cpu:
            return None
        frame = direct_groups(chunk, stream.tallies, stream.schema)
        if frame is not None:
            self.paths.took(paths.DIRECT)
        return frame

    def _materialize(self, stream: Materialize) -> StreamRows:
        (child,) = stream.inputs
        if stream.shared:
            return self._shared(child, stream.schema)
        if stream.partitioning.keys and self._stores(stream.schema):
            self.prepare(child)
            if self._fragments.pieces(child) > 1:
                # Steps that need no exchange after this one need its partitions.
                rows = self._shared(child, stream.schema)
                rows.shared = False
                return rows
        rows = StreamRows(
            frame=None if self._stores(stream.schema) else pl.DataFrame(schema=dict(stream.schema))
        )
        if not self._fragments.is_absent(child):
            # What it reads must be there before the next step of this query asks for rows.
            self.prepare(child)
            rows.rest = self._counted(self._batches(child, ahead=self._ahead))
        return rows

    def _stores(self, schema: Schema) -> bool:
        """Whether rows that wait do so in the store: only a column carries them there."""
        return self.plan.count > 1 and bool(schema)

    def _shared(self, child: Stream, schema: Schema) -> StreamRows:
        """Run a fragment and keep its rows for several readers: partition by partition if it has partitions."""
        if not self._stores(schema):
            frame = conform(self._collect(child), schema)
            return StreamRows(frame=frame, height=frame.height, nbytes=int(frame.estimated_size()))
        self.prepare(child)
        pieces = self._fragments.pieces(child)
        self.paths.took(paths.KEPT_WHOLE if pieces == 1 else paths.KEPT_PARTITIONS)
        rows = StreamRows(shared=True)
        for _, fragments in itertools.groupby(
            self._fragments_of(child), key=lambda fragment: fragment.number
        ):
            batches = (batch for each in fragments for batch in self._runs.batches(child, each))
            kept = handed_over(self._counted(batches), schema, self._transport.keep)
            rows.partitions.append([kept])
            rows.height, rows.nbytes = rows.height + kept.rows, rows.nbytes + kept.nbytes
        return rows

    def read_up_to(self, rows: StreamRows, schema: Schema, limit: float) -> None:
        """Read rows until there are more than ``limit`` bytes or no more."""

        def read() -> Iterator[pl.DataFrame]:
            assert rows.rest is not None
            while rows.nbytes <= limit:
                batch = next(rows.rest, None)
                if batch is None:
                    rows.rest = None
                    return
                rows.height += batch.height
                rows.nbytes += int(batch.estimated_size())
                yield batch

        if rows.frame is not None:
            rows.frame = pl.concat([rows.frame, *read()], rechunk=False)
            return
        self.paths.took(paths.KEPT)
        kept = handed_over(read(), schema, self._transport.keep)
        if not rows.partitions:
            rows.partitions = [[]]
        rows.partitions[0].append(kept)

    def _send(
        self,
        child: Stream,
        send: Callable[[ArrowStream, int], Sequence[ArrowStream]],
        *,
        in_parts: bool = False,
        target: Addressing | None = None,
    ) -> StreamRows:
        """Hand the output of ``child`` to a collective.

        A materialized input that is only partly read can be sent in two operations when the order does not matter.

        Parameters
        ----------
        target
            Gives rows the column ``DESTINATION`` on their way.
        """
        rows = self._rows[child] if isinstance(child, Materialize) else None
        schema = child.schema if target is None else addressed(child.schema)

        def moved(batches: Iterator[pl.DataFrame]) -> Sequence[ArrowStream]:
            if target is not None:
                batches = with_destination(batches, schema, target)
            return self._exchange(batches, schema, send)

        if rows is None or not (in_parts and rows.rest_anywhere):
            return partitioned(moved(self._batches(child)), schema=None if target is None else schema)
        del self._rows[child]
        self.paths.took(paths.TWO_SENDS)
        read = StreamRows(frame=rows.frame, partitions=rows.partitions)
        rest, rows.frame = rows.rest or iter(()), None
        first = moved(self._rows_read(read, child.schema))
        return partitioned(first, moved(rest), schema=None if target is None else schema)

    def _rows_read(self, rows: StreamRows, schema: Schema) -> Iterator[pl.DataFrame]:
        frame, rows.frame = rows.frame, None
        if frame is not None:
            yield frame
        del frame
        for source in rows.take_all():
            yield from stream_batches(opened(source, last=True), schema, self.brake)

    def _exchange(
        self,
        batches: Iterator[pl.DataFrame],
        schema: Schema,
        send: Callable[[ArrowStream, int], Sequence[ArrowStream]],
    ) -> Sequence[ArrowStream]:
        """Hand batches to a collective."""
        batches = self._counted(batches)
        if self.plan.count > 1 and schema:
            # Each is cut into as many pieces as there are partitions, and each piece costs some memory and time.
            batches = chunks(batches, self.plan.sent_bytes)
        return handed_over(batches, schema, lambda source: send(source, next(self._ops)))

    # -- what exchanges that look at the rows ask for ----------------------------------------------------------

    def to_all(self, frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
        """Give every rank the rows of each rank's ``frame``."""
        (everywhere,) = self._exchange(
            iter((conform(frame, schema),)),
            schema,
            lambda source, op: [self._transport.allgather(source, op=op)],
        )
        return read_stream(everywhere, schema)

    def scatter(
        self, frame: pl.LazyFrame, schema: Schema, *, ordered: bool, target: pl.Expr | None = None
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that its column ``DESTINATION`` names; return this rank's partitions.

        Parameters
        ----------
        target
            That column, where the rows do not have it: it is computed batch by batch.
        """
        batches = self._device.batches(frame, self._optimizations, Reading(ordered=ordered))
        return self.scatter_batches(batches, schema, target)

    def scatter_batches(
        self, batches: Iterator[pl.DataFrame], schema: Schema, target: pl.Expr | None = None
    ) -> Sequence[ArrowStream]:
        """Do the same with rows that come in batches."""
        partitions, sent = self.plan.count, addressed(schema)
        return self._exchange(
            with_destination(batches, sent, None if target is None else addressing(target)),
            sent,
            lambda source, op: self._transport.scatter(source, DESTINATION, op=op, partitions=partitions),
        )

    def kept(
        self, stream: Stream, look: Callable[[pl.DataFrame], None] | None = None
    ) -> tuple[pl.LazyFrame, int]:
        """Run a fragment to its end; return its rows on this rank, to be read once, and how many there are.

        Parameters
        ----------
        look
            Sees the rows pass.
        """
        if self.plan.count == 1:
            frame = conform(self._collect(stream), stream.schema)
            if look is not None:
                look(frame)
            return frame.lazy(), frame.height

        def seen() -> Iterator[pl.DataFrame]:
            for batch in self._batches(stream):
                if look is not None:
                    look(batch)
                yield batch

        self.prepare(stream)
        rows = handed_over(seen(), stream.schema, self._transport.keep)
        height = rows.rows
        return scan_stream(rows.stream(last=True), stream.schema, brake=self.brake), height

    def taken_back(self, stream: Stream) -> Local | None:
        """Drop what was read of a fragment and return the step that reads it, to be run again.

        To read columns of files twice takes less time than to keep all rows on disk until the columns are known.

        Returns
        -------
        None if the rows were read completely, or cannot be read again, or fit in memory. They are there then.
        """
        if self.plan.count == 1 or not isinstance(stream, Materialize) or stream.shared:
            return None
        self.prepare(stream)
        (child,) = stream.inputs
        rest = self._rows[stream].rest
        if rest is None or not isinstance(child, Local) or not child.rereadable:
            return None
        self.paths.took(paths.READ_BEFORE)
        del self._rows[stream]
        if isinstance(rest, Generator):
            rest.close()
        return child

    def passing(
        self, stream: Local, step: Callable[[pl.LazyFrame], pl.LazyFrame], schema: Schema
    ) -> Iterator[pl.DataFrame]:
        """Yield this rank's rows of a step that can be run again, after ``step`` was applied to them."""
        return self._batches(
            Local(
                inputs=(stream,),
                schema=schema,
                partitioning=stream.partitioning,
                ordered=stream.ordered,
                estimate=stream.estimate,
                title=stream.title,
                build=lambda frames, _: step(frames[0]),
            )
        )

    def batches(self, frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
        """Run a lazy frame and yield its rows in their order."""
        return self._device.batches(frame, self._optimizations, Reading(ordered=True))

    def batches_of(self, stream: Stream) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows on this rank."""
        return self._batches(stream)

    def stored(self, frame: pl.DataFrame, schema: Schema) -> Source:
        """Put the rows of a frame into the store."""
        return handed_over(iter((conform(frame, schema),)), schema, self._transport.keep)

    def everywhere(self, stream: Stream) -> pl.DataFrame:
        """Run a fragment and return its rows on all ranks, which are few."""
        frame = self._collect(stream)
        if stream.partitioning.distribution is Distribution.REPLICATED:
            return frame
        return self.to_all(frame, stream.schema)

    def _scalars(self, stream: WithScalars) -> pl.DataFrame:
        main, side = stream.inputs
        frame = self.everywhere(side)
        if frame.height != 1:
            raise AssertionError(f"a scalar sub-result has {frame.height} rows")
        return frame.select(name for name in frame.columns if name not in main.schema)

    def _check_order(self, stream: CheckedOrder) -> None:
        """Raise what Polars raises of unsorted rows, on all ranks, unless the parts are in order."""
        ends = self._collect(stream.inputs[1])
        if not ends.to_series().is_sorted():
            raise not_sorted(stream.operation)


def _to_heavy_keys(heavy: HeavyKeys, keys: Sequence[str], partitions: int) -> Addressing:
    """Return what gives rows their partitions where some keys are heavy."""
    seen = 0

    def address(batch: pl.DataFrame) -> pl.DataFrame:
        nonlocal seen
        turn, seen = seen % partitions, seen + batch.height
        return heavy.addressed(batch, keys, partitions, DESTINATION, turn)

    return address

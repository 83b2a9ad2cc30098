"""The steps between two exchanges as fragments: over all rows of a rank, or over one partition after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.block_join import BlockJoin, block_join
from cudf_polars.execute.division import Divider, Part
from cudf_polars.execute.fragments import Reading
from cudf_polars.execute.lookup_join import LookupJoin
from cudf_polars.execute.measured import Measured
from cudf_polars.execute.rows import StreamRows, handed_over, opened
from cudf_polars.execute.streams import (
    RowCount,
    conform,
    read_stream,
    scan_batches,
    scan_stored,
    scan_stream,
    stream_batches,
)
from cudf_polars.execute.transport import Source, StoredRows, is_stream, may_be_stored
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import (
    Broadcast,
    CheckedOrder,
    Local,
    Materialize,
    OrderedConcat,
    PositionExchange,
    RangeExchange,
    Schema,
    Shuffle,
    Stream,
    WithScalars,
    walk,
)
from cudf_polars.plan.columns import keep_columns

__all__ = ["Fragment", "Fragments"]

_NUMBER_BITS = 22
"""How many bits the number of a part of a rank's rows may have: a position of a row has 40 more."""


@dataclass
class Fragment:
    """A part of the query that needs no other rank, over what is on this rank.

    Attributes
    ----------
    inputs
        What its sources give, as it runs.
    number
        The partition that it runs over, or a part of; 0 if it runs over all rows.
    lookups
        How many of its joins are by lookup.
    nbytes
        Bytes, packed, of the rows in the store that only this fragment reads.
    """

    frame: pl.LazyFrame
    inputs: list[RowCount]
    number: int = 0
    lookups: int = 0
    nbytes: int = 0

    def had_no_rows(self) -> bool:
        """Whether all sources were read to their ends and had no row."""
        return bool(self.inputs) and all(count.complete and not count.rows for count in self.inputs)


@dataclass
class _Piece:
    """What one fragment is made of.

    Attributes
    ----------
    number
        Grows with the position of the piece's rows over all ranks.
    part
        Where the rows of partitioned streams are; None: all are read.
    partition
        The number of the partition over all ranks; None: all are read.
    frames
        Rows that are the same for all pieces of the step, read once for it.
    lookups
        By join that could be a lookup, what it is, found once for the step.
    made
        The streams that have been built.
    inputs
        What the sources give.
    """

    number: int
    part: Part | None
    partition: int | None
    frames: dict[Stream, pl.DataFrame]
    lookups: dict[Stream, LookupJoin | None]
    made: dict[Stream, pl.LazyFrame] = field(default_factory=dict)
    inputs: list[RowCount] = field(default_factory=list)

    def fragment(self, frame: pl.LazyFrame, number: int = 0, nbytes: int = 0) -> Fragment:
        """Return the fragment that this has become."""
        lookups = sum(lookup is not None for lookup in self.lookups.values())
        return Fragment(frame, self.inputs, number, lookups, nbytes)


@dataclass(frozen=True)
class Fragments:
    """Makes the fragments of one query on this rank.

    Attributes
    ----------
    divider
        Divides partitions that are too large; has what belongs to the query.
    rows
        By stream, the rows that are there; those that are read once go out of it.
    measured
        By stream, what running it has cost; of an exchange, the bytes of rows that this rank has sent.
    """

    divider: Divider
    rows: dict[Stream, StreamRows]
    measured: Mapping[Stream, Measured]

    # -- what is there by partitions -------------------------------------------------------------------------

    def pieces(self, stream: Stream) -> int:
        """Return in how many partitions the fragment that ends in ``stream`` runs; everything under it was prepared.

        One partition of a rank is to the plan what a rank is: its steps need no row of another. So a fragment runs by
        partitions if all that it reads is there by partitions, of the same number, or is the same for all.
        """
        return self.partitions(stream) or 1

    def partitions(self, stream: Stream) -> int | None:
        """Return in how many partitions the rows are there, 1: in none; ``None`` if each partition can have all."""
        return self._partitions(stream, {})

    def _partitions(self, stream: Stream, memo: dict[Stream, int | None]) -> int | None:
        if stream not in memo:
            memo[stream] = self._find_partitions(stream, memo)
        return memo[stream]

    def _find_partitions(self, stream: Stream, memo: dict[Stream, int | None]) -> int | None:
        if self.divider.plan.count == 1 or stream.partitioning.distribution is Distribution.SINGLE:
            return 1
        if isinstance(stream, Shuffle):
            return stream.partitions(self.divider.transport.nranks, self.divider.plan.count)
        if isinstance(stream, RangeExchange | OrderedConcat | PositionExchange):
            return self.divider.plan.count
        replicated = stream.partitioning.distribution is Distribution.REPLICATED
        match stream:
            case Local(inputs=()):
                return None if replicated else stream.partitions
            case Local():
                below = {self._partitions(child, memo) for child in stream.inputs} - {None}
                return 1 if len(below) > 1 else next(iter(below), None)
            case WithScalars() | CheckedOrder():
                return self._partitions(stream.inputs[0], memo)
            case _:
                rows = self.rows[stream]
                if len(rows.partitions) > 1:
                    return len(rows.partitions)
                return None if replicated and rows.rest is None and rows.lazy is None else 1

    # -- fragments -------------------------------------------------------------------------------------------

    def of(self, stream: Stream) -> Iterator[Fragment]:
        """Yield the fragment that ends in ``stream``, in as many pieces as it has; run each before the next."""
        divider = self.divider
        rank, pieces = divider.transport.rank, self.pieces(stream)
        frames: dict[Stream, pl.DataFrame] = {}
        lookups: dict[Stream, LookupJoin | None] = {}
        steps = list(self.steps(stream))
        sources = _read_by(steps)
        bits = max(0, _NUMBER_BITS - (divider.transport.nranks * pieces).bit_length())
        if pieces > 1:
            partitioned = [source for source in sources if self.partitions(source) == pieces]
        else:
            # The numbers of pieces grow from rank to rank, whether a rank divides its rows or not.
            partitioned = self._divisible(steps, sources)
            if not self._are_many(sources, partitioned):
                piece = _Piece(rank << bits if partitioned else rank, None, None, frames, lookups)
                yield piece.fragment(self._lazy(stream, piece))
                return
        # A range of a file is read as a whole: parts of what is beside it would each have all of it.
        is_whole = any(isinstance(step, Local) and step.build_partition is not None for step in steps)
        for number in range(pieces):
            divider.paths.took(paths.PARTITION if pieces > 1 else paths.OUTGROWN)
            part = Part({source: self._counted(self.rows[source].take(number)) for source in partitioned})
            first = (rank * pieces + number) << bits
            parts = iter((part.counted(),)) if is_whole else self._divided(part)
            for offset, each in enumerate(parts):
                if offset >> bits:
                    raise AssertionError(
                        "a partition was divided into too many parts: please report the query"
                    )
                piece = _Piece(first + offset, each, rank * pieces + number, frames, lookups)
                nbytes = each.nbytes() if divider.plan.limit is not None else 0
                if divider.plan.exceeds(nbytes):
                    self._join_by_blocks(stream, piece)
                yield piece.fragment(self._lazy(stream, piece), number, nbytes)
        for source in sources:
            # What is there once belongs to its reader; the plan holds what is read more often.
            if not source.rereadable:
                self.rows.pop(source, None)

    def _divisible(self, steps: Sequence[Stream], sources: Sequence[Stream]) -> list[Stream]:
        """Return the sources by whose keys a fragment with one partition can be divided; none if it cannot be.

        A plan has one partition a rank where all tables are small, but joins of small tables may give many rows. The
        results of a fragment over the hash partitions of a rank's rows, or over ranges of them, are together its result
        over all of them.
        """
        plan = self.divider.plan
        if plan.limit is None or plan.count > 1:
            return []
        if any(isinstance(step, Local) and not step.inputs for step in steps):
            return []
        divisible: list[Stream] = [s for s in sources if isinstance(s, Shuffle | RangeExchange)]
        return divisible if all(s in divisible or _is_same_for_all(s) for s in sources) else []

    def _are_many(self, sources: Sequence[Stream], divisible: Sequence[Stream]) -> bool:
        """Whether a fragment is to be divided, should its rows turn out to take more than the limit.

        This rank has sent more than half of the limit to the exchanges that it reads: by hash, it receives about as
        much. What the fragment reads beside them must be readable more than once.
        """
        limit = self.divider.plan.limit
        if limit is None or sum(self.measured[source].nbytes or 0 for source in divisible) <= limit / 2:
            return False
        rows = {source: self.rows[source] for source in sources}
        if any(each.rest is not None or each.lazy is not None for each in rows.values()):
            return False
        return all(len(rows[source].partitions) == 1 for source in divisible)

    def _counted(self, sources: Sequence[Source]) -> Sequence[Source]:
        """Return sources whose rows can be counted: those of an exchange with one partition are kept for that."""
        keep = self.divider.transport.keep
        return [keep(x) if is_stream(x) and not may_be_stored(x) else x for x in sources]

    def _divided(self, part: Part) -> Iterator[Part]:
        """Yield a partition in parts that are not too large, as far as it can be divided."""
        plan = self.divider.plan
        if plan.limit is None:
            yield part
            return
        part = part.counted()
        nbytes = part.nbytes()
        kept = {stream for stream in part.sources if stream.rereadable and part.level == 0}
        parts = self.divider.divide(part, nbytes, kept) if plan.exceeds(nbytes) else None
        if parts is None:
            yield part
            return
        del part
        while parts:
            yield from self._divided(parts.pop(0))

    def _join_by_blocks(self, stream: Stream, piece: _Piece) -> None:
        """Make the joins of a fragment block by block whose sides, both of them, are parts of a large partition."""
        divider = self.divider
        found = False
        inside = set(self.steps(stream))
        for local in (each for each in walk(stream) if isinstance(each, Local) and each in inside):
            join = BlockJoin.of(local)
            if join is None or not all(self._is_in_part(side, piece) for side in local.inputs):
                continue
            found = True
            piece.inputs.append(RowCount())
            piece.made[local] = scan_batches(self._blocks(join, piece), local.schema, piece.inputs[-1])
        divider.paths.took(paths.BLOCKS if found else paths.WHOLE)

    def _is_in_part(self, stream: Stream, piece: _Piece) -> bool:
        """Whether ``piece`` reads only a part of this rank's rows of ``stream``."""
        if self.pieces(stream) > 1:
            return True
        return piece.part is not None and any(
            source in piece.part.sources for source in _read_by(self.steps(stream))
        )

    def _blocks(self, join: BlockJoin, piece: _Piece) -> Iterator[pl.DataFrame]:
        """Run both sides of a join, and return its rows while they are made."""
        divider, local = self.divider, join.local
        left, right = local.inputs
        sides = {
            "left": (left, self._kept_side(left, piece)),
            "right": (right, self._kept_side(right, piece)),
        }

        def read(name: str) -> Iterator[pl.DataFrame]:
            side, rows = sides[name]
            return stream_batches(rows.stream(), side.schema, divider.brake)

        def run(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
            return divider.device.batches(frame, divider.optimizations, Reading(ordered=False))

        batches = block_join(join, read, run, divider.plan.block_bytes)
        return (conform(batch, local.schema) for batch in batches)

    def steps(self, stream: Stream) -> Iterator[Stream]:
        """Yield the steps of the fragment that ends in ``stream``, each once."""
        seen: set[Stream] = set()
        stack = [stream]
        while stack:
            each = stack.pop()
            if each in seen:
                continue
            seen.add(each)
            yield each
            match each:
                case Local():
                    stack.extend(each.inputs)
                case WithScalars() | CheckedOrder():
                    stack.append(each.inputs[0])

    def _kept_side(self, side: Stream, piece: _Piece) -> StoredRows:
        """Run a part of a fragment and keep its rows."""
        divider = self.divider
        frame = self._lazy(side, piece)
        batches = divider.device.batches(frame, divider.optimizations, Reading(ordered=False))
        return handed_over(
            (conform(batch, side.schema) for batch in batches), side.schema, divider.transport.keep
        )

    # -- building --------------------------------------------------------------------------------------------

    def is_absent(self, stream: Stream) -> bool:
        """Whether this rank has no rows of ``stream`` by its distribution."""
        return stream.partitioning.distribution is Distribution.SINGLE and self.divider.transport.rank != 0

    def _lazy(self, stream: Stream, piece: _Piece) -> pl.LazyFrame:
        """Return the piece of the fragment that ends in ``stream``; everything under it was prepared."""
        if (known := piece.made.get(stream)) is not None:
            return known
        if self.is_absent(stream):
            # A step over no rows may still make some (a global sum gives one row): rank 0 alone does it.
            frame = _noted(pl.DataFrame(schema=dict(stream.schema)), piece)
        elif stream in piece.frames:
            frame = _noted(piece.frames[stream], piece)
        elif isinstance(stream, Local):
            if not stream.inputs:
                piece.inputs.append(RowCount(1))  # files: how many rows, nobody knows
            if stream.build_partition is not None and piece.partition is not None:
                frame = stream.build_partition((), piece.partition)
            elif (found := self._by_lookup(stream, piece)) is not None:
                frame = found
            else:
                frame = stream.build([self._lazy(child, piece) for child in stream.inputs], piece.number)
        elif isinstance(stream, WithScalars):
            scalars = self.rows[stream].frame
            assert scalars is not None
            main = self._lazy(stream.inputs[0], piece)
            frame = main.with_columns(_literal(column) for column in scalars)
            frame = keep_columns(frame, stream.schema)
        elif isinstance(stream, CheckedOrder):
            frame = self._lazy(stream.inputs[0], piece)
        else:
            frame = self._source(stream, piece)
        piece.made[stream] = frame
        return frame

    def _by_lookup(self, stream: Local, piece: _Piece) -> pl.LazyFrame | None:
        """Return a step as a join by lookup, if it is one and its rows allow it; the side that is found is read."""
        divider = self.divider
        if stream.lookup_side is None or not divider.device.is_cpu:
            return None
        side, others = stream.inputs if stream.lookup_side == "left" else stream.inputs[::-1]
        if stream not in piece.lookups:
            if self._is_in_part(side, piece):
                return None
            apart = _Piece(piece.number, piece.part, piece.partition, piece.frames, piece.lookups)
            frame = divider.device.collect(self._lazy(side, apart), divider.optimizations)
            piece.frames.pop(side, None)
            apart.made.clear()
            columns = {column.name: column for column in frame}
            del frame
            lookup = piece.lookups[stream] = LookupJoin.of(stream, columns)
            if lookup is None:
                piece.frames[side] = pl.DataFrame(list(columns.values()))
        lookup = piece.lookups[stream]
        if lookup is None:
            return None
        divider.paths.took(paths.LOOKUP)
        piece.inputs.append(RowCount(lookup.height, complete=True))
        return lookup.build(self._lazy(others, piece))

    def _source(self, stream: Stream, piece: _Piece) -> pl.LazyFrame:
        rows = self.rows[stream]
        if isinstance(stream, Materialize) and stream.shared and rows.frame is not None:
            return _noted(rows.frame, piece)
        in_part = piece.part is not None and stream in piece.part.sources
        if rows.partitions and rows.rest is None and not in_part and _is_same_for_all(stream):
            piece.frames[stream] = self._read(stream, rows, keep=piece.part is not None)
            return _noted(piece.frames[stream], piece)
        if in_part:
            assert piece.part is not None
            sources = list(piece.part.sources[stream])
            last = not rows.shared
        else:
            sources, last = rows.take_all(), not rows.shared
        if piece.part is None and not stream.rereadable:
            del self.rows[stream]
        schema = rows.schema or stream.schema
        parts = [] if rows.frame is None else [_noted(rows.frame, piece)]
        if rows.lazy is not None:
            piece.inputs.append(RowCount(rows.height, complete=True))
            parts.append(rows.lazy)
        for source in sources:
            piece.inputs.append(RowCount())
            parts.append(self._scan(source, schema, piece.inputs[-1], last=last))
        if rows.rest is not None:
            piece.inputs.append(RowCount())
            parts.append(scan_batches(rows.rest, stream.schema, piece.inputs[-1]))
        frame = parts[0] if len(parts) == 1 else pl.concat(parts, how="vertical")
        return keep_columns(frame, stream.schema) if rows.schema else frame

    def _scan(self, source: Source, schema: Schema, count: RowCount, *, last: bool) -> pl.LazyFrame:
        brake = self.divider.brake
        if last or is_stream(source):
            return scan_stream(opened(source, last=True), schema, count, brake)
        return scan_stored(source.stream, schema, count, brake)

    def _read(self, stream: Stream, rows: StreamRows, *, keep: bool) -> pl.DataFrame:
        """Return rows that are the same for all pieces of a step as a frame: Polars plans a join better around one."""
        last = not (rows.shared or keep)
        sources = [source for partition in rows.partitions for source in partition]
        if not keep and not stream.rereadable:
            del self.rows[stream]
        return pl.concat(
            [read_stream(opened(source, last=last), stream.schema) for source in sources], rechunk=False
        )


def _read_by(steps: Iterable[Stream]) -> list[Stream]:
    """Return the streams that a fragment reads, of its steps."""
    return [step for step in steps if not isinstance(step, Local | WithScalars | CheckedOrder)]


def _is_same_for_all(stream: Stream) -> bool:
    return isinstance(stream, Broadcast) or stream.partitioning.distribution is Distribution.REPLICATED


def _noted(frame: pl.DataFrame, piece: _Piece) -> pl.LazyFrame:
    piece.inputs.append(RowCount(frame.height, complete=True))
    return frame.lazy()


def _literal(column: pl.Series) -> pl.Expr:
    """Return the only value of ``column`` as a literal of the same name."""
    dtype = column.dtype
    if (dtype.is_numeric() and not dtype.is_decimal()) or dtype in (pl.String, pl.Boolean, pl.Date):
        return pl.lit(column.item(), dtype=dtype).alias(column.name)
    # Python has no exact value for the rest (nanoseconds, categories): a series of one row is broadcast.
    return pl.lit(column).alias(column.name)

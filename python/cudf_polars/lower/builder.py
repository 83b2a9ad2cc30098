"""Makes streams: local steps with the right schema and properties, and exchanges only where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cudf_polars.lower.aggregates import ORDER
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.fallback import FallbackMode
from cudf_polars.lower.findings import Counted, Findings
from cudf_polars.lower.partitioning import (
    ARBITRARY,
    REPLICATED,
    SINGLE,
    Distribution,
    Partitioning,
    hashed,
    ranged,
)
from cudf_polars.lower.physical import (
    Broadcast,
    Builder,
    CheckedOrder,
    Estimate,
    Gather,
    GlobalSlice,
    Local,
    Materialize,
    RangeExchange,
    Schema,
    Shuffle,
    SortKey,
    Stream,
)
from cudf_polars.lower.spreading import HeavyKeys
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.placeholder import ROWS

__all__ = ["Settings", "StreamBuilder"]

# Bits of ORDER that number the rows of one rank; the bits above are the rank.
_ROW_BITS = 40

# Polars writes "to the end" as the largest length of its index type.
_OPEN_END = 2**32 - 1


@dataclass(frozen=True)
class Settings:
    """What the planner decides by.

    Attributes
    ----------
    nranks
        Number of ranks, at least 2.
    partitions
        Into how many partitions exchanges split the rows of a rank.
    chunk_bytes
        Where there are several, a step that may be done over any rows takes so many bytes at a time.
    groups_at_once
        With up to so many groups, all rows of a rank are aggregated in one run; with more, in chunks.
    broadcast_limit
        Bytes of memory up to which a join's side is sent to every rank.
    lookup_limit
        Bytes of memory up to which a join's side is sent to every rank if the join is by lookup, without a hash table.
    small_limit
        Bytes over all ranks up to which a result goes to rank 0 instead of being distributed.
    read_everywhere_limit
        Bytes of files up to which every rank reads a table rather than receive it.
    head_limit
        Rows up to which a sort's head is made by merging the ranks' heads.
    filter_keys
        How many keys of a join's side may filter the other one one by one; 0: none do.
    bloom_filter_bytes
        Bytes of the Bloom filter that does where they are more; 0: none does.
    filter_limit
        Bytes of memory of a rank up to which that side is run for its keys.
    filter_share
        A filter is made where it is expected to keep this part of the rows at most.
    filter_least
        Bytes, as estimated, from which on a join's side is worth a filter.
    sample_least
        Rows, as estimated, from which on samples are taken to see how many groups there are, and whether many rows have
        one key.
    fallback_mode
        What to do about steps that run on one rank.
    """

    nranks: int
    partitions: int
    chunk_bytes: int
    groups_at_once: float
    broadcast_limit: int
    lookup_limit: int
    small_limit: int
    read_everywhere_limit: int
    head_limit: int
    filter_keys: int
    bloom_filter_bytes: int
    filter_limit: int
    filter_share: float
    filter_least: int
    sample_least: float
    fallback_mode: FallbackMode


@dataclass
class StreamBuilder:
    """Makes the streams of one query.

    Attributes
    ----------
    findings
        What is known of rows that were run. Answers may depend on what :meth:`count` and :meth:`is_empty` say; only the
        cost may depend on the rest.
    fallbacks
        The steps that run on one rank for want of a distributed form, in the order met.
    """

    settings: Settings
    findings: Findings
    fallbacks: list[str] = field(default_factory=list)

    # -- how much there is -----------------------------------------------------------------------------------

    def count(self, materialized: Materialize) -> Counted:
        """Run ``materialized`` to its end and return what it holds."""
        return self.findings.run_and_measure(materialized, None)

    def is_empty(self, materialized: Materialize) -> bool:
        """Run ``materialized`` until it has a row, and return whether it has none on any rank."""
        counted = self.findings.run_and_measure(materialized, 0)
        return counted.complete and counted.rows == 0

    # -- local steps -----------------------------------------------------------------------------------------

    def local(
        self,
        title: str,
        inputs: Sequence[Stream],
        build: Builder,
        *,
        schema: Schema | None = None,
        partitioning: Partitioning | None = None,
        ordered: bool | None = None,
        estimate: Estimate | None = None,
        of_any_rows: bool = False,
    ) -> Local:
        """Return a local step; what is not given is as in its first input.

        Parameters
        ----------
        schema
            Without it, the schema that Polars infers for ``build`` over empty inputs.
        """
        first = inputs[0] if inputs else None
        if schema is None:
            empty = [pl.LazyFrame(schema=dict(stream.schema)) for stream in inputs]
            schema = build(empty, 0).collect_schema()
        if estimate is None:
            rows = first.estimate.rows if first is not None else 0.0
            estimate = Estimate(rows, rows * row_width(schema))
        if partitioning is None:
            assert first is not None
            partitioning = first.partitioning
        if ordered is None:
            ordered = all(stream.ordered for stream in inputs)
        return Local(
            inputs=tuple(inputs),
            schema=dict(schema),
            partitioning=partitioning,
            ordered=ordered,
            estimate=estimate,
            build=build,
            title=title,
            of_any_rows=of_any_rows,
        )

    def with_columns(self, stream: Stream, exprs: Sequence[pl.Expr], title: str) -> Stream:
        """Return ``stream`` with row-wise columns added."""
        if not exprs:
            return stream
        added = list(exprs)
        return self.local(title, [stream], lambda frames, _: frames[0].with_columns(added))

    def select(self, stream: Stream, names: Sequence[str]) -> Stream:
        """Return only the columns ``names`` of ``stream``."""
        if list(stream.schema) == list(names):
            return stream
        kept = list(names)
        # A key that is dropped no longer says anything about the columns that are left.
        partitioning = stream.partitioning
        if partitioning.keys:
            partitioning = partitioning.with_keys([key & set(kept) for key in partitioning.keys])
        return self.local(
            f"PROJECT {', '.join(kept)}",
            [stream],
            lambda frames, _: keep_columns(frames[0], kept),
            schema={name: stream.schema[name] for name in kept},
            partitioning=partitioning,
        )

    def attach_order(self, stream: Stream, name: str = ORDER) -> Stream:
        """Return ``stream`` with a column (UInt64) that grows with the position of a row over all ranks."""

        def build(frames: Sequence[pl.LazyFrame], rank: int) -> pl.LazyFrame:
            position = pl.col(name).cast(pl.UInt64) + pl.lit(rank << _ROW_BITS, dtype=pl.UInt64)
            # The index comes in front; the columns keep their places before it.
            return frames[0].with_row_index(name).select(*stream.schema, position.alias(name))

        return self.local("NUMBER ROWS", [stream], build, schema={**stream.schema, name: pl.UInt64()})

    def sort_locally(self, stream: Stream, names: Sequence[str]) -> Stream:
        """Return ``stream`` with each rank's rows in ascending order of the columns ``names``."""
        by = list(names)
        return self.local(
            f"SORT each rank by {', '.join(by)}",
            [stream],
            lambda frames, _: frames[0].sort(by, maintain_order=True),
            schema=stream.schema,
            ordered=True,
        )

    def only_on_first(self, stream: Stream) -> Stream:
        """Return a replicated stream as rank 0 has it."""
        assert stream.partitioning.distribution is Distribution.REPLICATED
        return self.local(
            "KEEP on rank 0", [stream], lambda frames, _: frames[0], schema=stream.schema, partitioning=SINGLE
        )

    # -- exchanges -------------------------------------------------------------------------------------------

    def materialize(self, stream: Stream, reason: str, *, shared: bool = False) -> Materialize:
        """Return ``stream`` with its rows kept on each rank."""
        return Materialize(
            inputs=(stream,),
            schema=stream.schema,
            partitioning=stream.partitioning,
            ordered=stream.ordered,
            estimate=stream.estimate,
            reason=reason,
            shared=shared,
        )

    def disjoint(self, stream: Stream) -> Stream:
        """Return ``stream`` with each row on one rank only."""
        return (
            self.only_on_first(stream)
            if stream.partitioning.distribution is Distribution.REPLICATED
            else stream
        )

    def shuffle(self, stream: Stream, keys: Sequence[str], heavy: HeavyKeys | None = None) -> Stream:
        """Return ``stream`` with rows sent by the hash of ``keys``, even if they are already collocated.

        Parameters
        ----------
        heavy
            Keys whose rows go to other partitions as well.
        """
        stream = self.disjoint(stream)
        return Shuffle(
            inputs=(stream,),
            schema=stream.schema,
            partitioning=hashed(keys) if heavy is None else ARBITRARY,
            ordered=False,
            estimate=stream.estimate,
            keys=tuple(keys),
            heavy=heavy,
        )

    def shuffle_to_ranges(self, stream: Stream, key: str, boundaries: tuple[Any, ...]) -> Stream:
        """Return ``stream`` with rows sent to where files have been split at these values of ``key``."""
        stream = self.disjoint(stream)
        return Shuffle(
            inputs=(stream,),
            schema=stream.schema,
            partitioning=ranged([key], boundaries),
            ordered=False,
            estimate=stream.estimate,
            keys=(key,),
            boundaries=boundaries,
        )

    def gather(self, stream: Stream) -> Stream:
        """Return ``stream`` with all its rows on rank 0."""
        if stream.partitioning.distribution is Distribution.SINGLE:
            return stream
        if stream.partitioning.distribution is Distribution.REPLICATED:
            return self.only_on_first(stream)
        if not stream.schema:
            return self._counted(stream, self.gather)
        return Gather(
            inputs=(stream,),
            schema=stream.schema,
            partitioning=SINGLE,
            ordered=stream.ordered,
            estimate=stream.estimate,
        )

    def broadcast(self, stream: Stream) -> Stream:
        """Return ``stream`` with all its rows on every rank."""
        if stream.partitioning.distribution is Distribution.REPLICATED:
            return stream
        if not stream.schema:
            return self._counted(stream, self.broadcast)
        return Broadcast(
            inputs=(stream,),
            schema=stream.schema,
            partitioning=REPLICATED,
            ordered=stream.ordered,
            estimate=stream.estimate,
        )

    def _counted(self, stream: Stream, move: Callable[[Stream], Stream]) -> Stream:
        """Move rows without columns: only a column carries them."""
        rows = pl.repeat(False, pl.len(), dtype=pl.Boolean).alias(ROWS)
        carried = self.local("COUNT ROWS", [stream], lambda frames, _: frames[0].select(rows))
        return self.local("DROP COLUMN", [move(carried)], lambda frames, _: frames[0].drop(ROWS), schema={})

    def is_whole(self, stream: Stream) -> bool:
        """Whether some rank has all rows, so that any step can be done there."""
        return stream.partitioning.distribution in (Distribution.SINGLE, Distribution.REPLICATED)

    def collocate(self, stream: Stream, keys: Sequence[str]) -> Stream:
        """Return ``stream`` with rows that agree in ``keys`` on one rank, by a shuffle if necessary."""
        return stream if stream.partitioning.collocates(keys) else self.shuffle(stream, keys)

    def gather_or_shuffle(
        self, stream: Stream, keys: Sequence[str], reason: str, limit: int | None = None
    ) -> Stream:
        """Return ``stream`` with rows that agree in ``keys`` on one rank.

        Its rows are materialized first: when they are few, rank 0 gets them all, which spares every later step its
        exchange.

        Parameters
        ----------
        limit
            Bytes that are few; by default those of the settings.
        """
        if stream.partitioning.collocates(keys):
            return stream
        materialized, small = self.materialize_if_small(stream, reason, limit)
        return self.gather(materialized) if small else self.shuffle(materialized, keys)

    def materialize_if_small(
        self, stream: Stream, reason: str, limit: int | None = None
    ) -> tuple[Materialize, bool]:
        """Return ``stream`` materialized and whether it is small enough to be handled by rank 0."""
        limit = self.settings.small_limit if limit is None else limit
        materialized = self.materialize(stream, reason)
        size = self.findings.measure(materialized, limit)
        return materialized, size.complete and size.nbytes <= limit

    def range_sort(
        self, stream: Stream, keys: Sequence[SortKey], sort: Callable[[pl.LazyFrame], pl.LazyFrame]
    ) -> Stream:
        """Return ``stream`` sorted over the ranks: ``sort`` puts one rank's rows in order."""

        def build(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
            return sort(frames[0])

        title = f"SORT by {', '.join(key.column for key in keys)}"
        if self.is_whole(stream):
            return self.local(title, [stream], build, schema=stream.schema, ordered=True)
        materialized, small = self.materialize_if_small(stream, "to choose how to sort")
        moved = self.gather(materialized) if small else self.by_ranges(materialized, keys)
        return self.local(title, [moved], build, schema=stream.schema, ordered=True)

    def by_ranges(self, stream: Stream, keys: Sequence[SortKey], boundaries: Stream | None = None) -> Stream:
        """Return ``stream`` with rows sent by ranges of ``keys``; those of a rank are not sorted.

        Parameters
        ----------
        boundaries
            On all ranks, as :class:`~cudf_polars.lower.physical.RangeExchange` has them, where rows of a rank are not
            in partitions; by default they are found.
        """
        return RangeExchange(
            inputs=(stream,) if boundaries is None else (stream, boundaries),
            schema=stream.schema,
            partitioning=ranged([key.column for key in keys]),
            ordered=stream.ordered,
            estimate=stream.estimate,
            keys=tuple(keys),
        )

    def restore_order(self, stream: Stream, names: Sequence[str]) -> Stream:
        """Return ``stream`` sorted by its order columns ``names``, without them; nulls come last."""
        by = list(names)
        keys = [SortKey(name, descending=False, nulls_last=True) for name in by]
        ordered = self.range_sort(stream, keys, lambda frame: frame.sort(by, nulls_last=True))
        return self.select(ordered, [name for name in ordered.schema if name not in by])

    def checked_order(
        self, stream: Stream, values: Stream, column: pl.Expr, name: str, operation: str
    ) -> Stream:
        """Return ``stream``, once the ranks' parts were seen to be in ascending order of a column, one after the other.

        Parameters
        ----------
        values
            Has the same rows, for the column called ``name``.
        operation
            What Polars calls the step that needs the order.
        """
        rows = "__rr_rows"

        def ends(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
            # Nulls match nothing, wherever they are: Polars takes them first, and mostly last.
            present = frames[0].select(column).filter(pl.col(name).is_not_null())
            both = pl.col(name).first().append(pl.col(name).last())
            return present.select(both, pl.len().alias(rows)).filter(pl.col(rows) > 0).select(name)

        parts = self.local(f"ENDS of {name}", [values], ends, partitioning=ARBITRARY)
        return CheckedOrder(
            inputs=(stream, self.broadcast(parts)),
            schema=stream.schema,
            partitioning=stream.partitioning,
            ordered=stream.ordered,
            estimate=stream.estimate,
            operation=operation,
        )

    # -- rows by position ------------------------------------------------------------------------------------

    def slice(self, stream: Stream, rows: tuple[int, int | None] | None) -> Stream:
        """Return the rows ``(offset, length)`` of ``stream``; no rank keeps more than it may need.

        Parameters
        ----------
        rows
            The offset is negative when counted from the end; a length of ``None`` goes up to the end;
            ``None`` is all rows.
        """
        if rows is None:
            return stream
        offset, length = rows
        if length is not None and max(offset, 0) + length >= _OPEN_END:  # behind another slice, it is shorter
            length = None
        if self.is_whole(stream):
            # rows that every rank has need not be in the same order everywhere
            stream = self.disjoint(stream)
            return self.local(
                "SLICE", [stream], lambda frames, _: frames[0].slice(offset, length), schema=stream.schema
            )
        bound = stream
        if offset >= 0 and length is not None:
            bound = self.head_of_ranks(stream, offset + length)
        elif offset < 0:
            bound = self.local(
                "TAIL", [stream], lambda frames, _: frames[0].tail(-offset), schema=stream.schema
            )
        height = float(length if length is not None else stream.estimate.rows)
        if bound is not stream and offset < 0:
            # The tail of each rank holds the tail of all; the offset still counts from the end.
            height = min(height, float(-offset))
        return GlobalSlice(
            inputs=(bound,),
            schema=stream.schema,
            partitioning=stream.partitioning,
            ordered=stream.ordered,
            estimate=Estimate(height, height * row_width(stream.schema)),
            offset=offset,
            length=length,
        )

    def head_of_ranks(self, stream: Stream, rows: int) -> Stream:
        """Return the first ``rows`` rows of each rank: of all ranks' first ``rows`` rows, those are all."""
        if rows >= _OPEN_END:
            return stream
        return self.local("HEAD", [stream], lambda frames, _: frames[0].head(rows), schema=stream.schema)

    # -- fallback --------------------------------------------------------------------------------------------

    def fall_back(self, step: str) -> None:
        """Note that ``step`` runs on one rank.

        Raises
        ------
        NotImplementedError
            If the user wants an error instead.
        """
        if self.settings.fallback_mode == "raise":
            raise NotImplementedError(
                f"{step} cannot be distributed over ranks. Set fallback_mode='warn' or 'silent' to run it on one."
            )
        self.fallbacks.append(step)

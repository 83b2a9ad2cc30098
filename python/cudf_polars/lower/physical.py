"""The physical plan: streams of rows over the ranks, made by local steps and by exchanges.

A *stream* is a relation whose rows are distributed over the ranks. A :class:`Local` stream needs no other rank: a
connected group of them is a fragment and runs as one Polars streaming query. Every other kind ends a fragment:
its input is run to the end and handed to the ranks (:class:`Shuffle`, :class:`Broadcast`, ...), or materialized on this
rank because its size decides what comes next (:class:`Materialize`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import polars as pl

from cudf_polars.lower.partitioning import Partitioning
from cudf_polars.lower.spreading import HeavyKeys
from cudf_polars.lower.tallies import Tallies
from cudf_polars.plan.nodes import Node

__all__ = [
    "Broadcast",
    "Carried",
    "CheckedOrder",
    "Estimate",
    "Gather",
    "GlobalRowIndex",
    "GlobalSlice",
    "Local",
    "Materialize",
    "NeighbourExchange",
    "OrderedConcat",
    "PositionExchange",
    "RangeExchange",
    "Schema",
    "Shuffle",
    "SortKey",
    "SortedExchange",
    "Stream",
    "StreamReadTwiceError",
    "WithScalars",
    "walk",
]

Schema: TypeAlias = Mapping[str, pl.DataType]
Builder: TypeAlias = Callable[[Sequence[pl.LazyFrame], int], pl.LazyFrame]


@dataclass(frozen=True)
class Estimate:
    """Estimated size of a stream over all ranks, before it ran.

    Attributes
    ----------
    counted
        Whether it was counted after all.
    """

    rows: float
    nbytes: float
    counted: bool = False

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate for ``factor`` times the rows."""
        return Estimate(self.rows * factor, self.nbytes * factor)


class StreamReadTwiceError(AssertionError):
    """Two streams were built that read the same rows, which are there once."""


@dataclass(eq=False, kw_only=True)
class Stream:
    """A relation distributed over the ranks; identity is equality.

    The rows of an exchange can be read once. Building a second reader of them raises an error at once, for tables of
    any size: so decide before you build.

    Attributes
    ----------
    inputs
        The streams that it reads.
    schema
        Names and types of its columns, in order; the same on all ranks.
    partitioning
        Which rank has which row.
    ordered
        Whether the ranks' rows, concatenated in rank order, are in the order that the query promises.
    estimate
        Rows and bytes over all ranks, as estimated before running.
    """

    inputs: tuple[Stream, ...]
    schema: Schema
    partitioning: Partitioning
    ordered: bool
    estimate: Estimate
    _is_read: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Take the inputs.

        Raises
        ------
        StreamReadTwiceError
            If one can be read once only, and another stream reads it already.
        """
        for stream in self.inputs:
            if stream._is_read and not stream.rereadable:
                raise StreamReadTwiceError(
                    f"{self.label} reads {stream.label}, whose rows another step takes: this is a fault of the planner,"
                    " please report the query"
                )
            stream._is_read = True

    @property
    def rereadable(self) -> bool:
        """Whether several streams may read this one; the rows of an exchange are gone once they were read."""
        return False

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return type(self).__name__


@dataclass(eq=False, kw_only=True)
class Local(Stream):
    """A step that each rank does by itself.

    Attributes
    ----------
    build
        ``build(frames, rank)`` gives the step over the inputs' lazy frames on ``rank``.
    title
        One line for ``explain``.
    of_any_rows
        The step may be done over any parts of a rank's rows, one after the other: what follows takes its results
        together again, as it does those of the ranks.
    node
        The node of the plan that it is, if it is one as a whole.
    build_partition
        Of a source whose rows are there by partitions: the same for one of these, by its number over all ranks.
    partitions
        How many these are on each rank.
    tallies
        Of a group-by: what it computes, if that is counts and sums by an integer.
    lookup_side
        Of a join: the side, the same for all rows of the other one on a rank, whose rows may be found by the value of
        the key itself (:mod:`cudf_polars.lower.lookups`).
    """

    build: Builder
    title: str
    of_any_rows: bool = False
    node: Node | None = None
    build_partition: Builder | None = None
    partitions: int = 1
    tallies: Tallies | None = None
    lookup_side: str | None = None

    @property
    def rereadable(self) -> bool:
        """Whether all that it is computed from can be read again."""
        return all(stream.rereadable for stream in self.inputs)

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return self.title


@dataclass(eq=False, kw_only=True)
class Materialize(Stream):
    """The rows of its input kept on this rank: they are read more than once, or their size decides what follows.

    Attributes
    ----------
    reason
        Why, for ``explain``.
    shared
        Several streams read it, so that the rows stay until the query ends.
    """

    reason: str
    shared: bool = False

    @property
    def rereadable(self) -> bool:
        """Whether it is kept until the query ends."""
        return self.shared

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"MATERIALIZE ({self.reason})"


@dataclass(eq=False, kw_only=True)
class Shuffle(Stream):
    """Rows move to the rank that the hash of ``keys`` selects, or in whose range of the only key they are.

    Attributes
    ----------
    keys
        Names of columns.
    boundaries
        The first value of each partition's range but the first one's, over all ranks, which files that are sorted by
        the key are split at: rows move to those that they match. None: rows move by hash.
    heavy
        Keys whose rows do not go where their hash says, or not there alone; None: there are none.
    """

    keys: tuple[str, ...]
    boundaries: tuple[Any, ...] | None = None
    heavy: HeavyKeys | None = None

    def partitions(self, nranks: int, by_hash: int) -> int:
        """Return how many partitions of a rank the ranges are; ``by_hash`` if there are none."""
        return by_hash if self.boundaries is None else (len(self.boundaries) + 1) // nranks

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        how = "hash" if self.boundaries is None else "ranges"
        label = f"SHUFFLE by {how}({', '.join(self.keys)})"
        return label if self.heavy is None else f"{label}, {self.heavy.label}"


@dataclass(eq=False, kw_only=True)
class Broadcast(Stream):
    """Every rank gets all rows, in rank order."""

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return "BROADCAST"


@dataclass(eq=False, kw_only=True)
class Gather(Stream):
    """Rank 0 gets all rows, in rank order."""

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return "GATHER to rank 0"


@dataclass(frozen=True)
class SortKey:
    """One sort key: a column and how it sorts."""

    column: str
    descending: bool
    nulls_last: bool


@dataclass(eq=False, kw_only=True)
class RangeExchange(Stream):
    """Rows move so that each rank has one range of the sort keys, in the order of the ranks.

    The boundaries come from a sample of all ranks; or they are the rows of the second input, which all ranks have: the
    first keys of the ranges of all ranks but the first, made comparable (:func:`~cudf_polars.lower.ranges.comparable`).
    Rows with equal keys meet on one rank, in input order, but the rows of a rank are not sorted yet.
    """

    keys: tuple[SortKey, ...]

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        names = ", ".join(f"{key.column}{' desc' if key.descending else ''}" for key in self.keys)
        return f"RANGE EXCHANGE by ({names})"


@dataclass(eq=False, kw_only=True)
class SortedExchange(RangeExchange):
    """A range exchange of rows that have to be sorted by its only key already; they stay in their order.

    The key is a new column: that of the input, with each null replaced by the value before it.

    Attributes
    ----------
    operation
        What Polars calls the step that needs the order, in its error where the rows are not sorted.
    filled
        The column of the input that the key is made of.
    """

    operation: str
    filled: str

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"RANGE EXCHANGE of rows sorted by {self.filled}"


@dataclass(eq=False, kw_only=True)
class NeighbourExchange(RangeExchange):
    """Rows sorted by the only key move to the ranges of another exchange; rows without a key are dropped.

    Each range also gets two rows of other ranges, its neighbours: the last row before the range, and one of the rows
    with the first key behind it.

    Attributes
    ----------
    operation
        As in :class:`SortedExchange`.
    like
        The exchange whose ranges these are; it runs before this one.
    beside
        Which of the rows with the first key behind a range it gets.
    """

    operation: str
    like: SortedExchange
    beside: Literal["first", "last"]

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"RANGE EXCHANGE of rows sorted by {self.keys[0].column}, each range with the rows beside it"


@dataclass(eq=False, kw_only=True)
class GlobalSlice(Stream):
    """Rows ``offset`` to ``offset + length`` of the ordered input; they stay where they are."""

    offset: int
    length: int | None

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"GLOBAL SLICE [offset {self.offset}, length {self.length}]"


@dataclass(eq=False, kw_only=True)
class GlobalRowIndex(Stream):
    """The ordered input with the position of each row over all ranks in front."""

    name: str
    offset: int

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"GLOBAL ROW INDEX {self.name!r}"


@dataclass(eq=False, kw_only=True)
class Carried(Stream):
    """The ordered input, each rank's rows seen beside a summary of all rows before them and of all rows behind them.

    Attributes
    ----------
    summary
        Names and types of the columns of a summary, which has few rows.
    summarize
        Gives the summary of some rows.
    merge
        Gives the summary of rows whose summaries, one below the other, are in their order; of none it has no row.
    apply
        ``apply(rows, before, behind)`` gives the rows of the stream; without rows on a side its summary has none.
    title
        One line for ``explain``.
    together
        Names of columns: rows that follow each other and are equal in them are on one rank, and in one chunk of it.
    """

    summary: Schema
    summarize: Callable[[pl.DataFrame], pl.DataFrame]
    merge: Callable[[pl.DataFrame], pl.DataFrame]
    apply: Callable[[pl.LazyFrame, pl.DataFrame, pl.DataFrame], pl.LazyFrame]
    title: str
    together: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return self.title


@dataclass(eq=False, kw_only=True)
class OrderedConcat(Stream):
    """The inputs one after the other: all rows of the first, in rank order, then those of the second."""

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return "ORDERED CONCATENATION"


@dataclass(eq=False, kw_only=True)
class PositionExchange(Stream):
    """Rows are redistributed by their global position: equal positions of several such streams go to the same rank.

    Attributes
    ----------
    bounds
        The first position of each rank's range, and how many positions there are.
    """

    bounds: tuple[int, ...]

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return "EXCHANGE by position"


@dataclass(eq=False, kw_only=True)
class WithScalars(Stream):
    """The first input with the columns of the second, whose single row is first given to every rank."""

    @property
    def rereadable(self) -> bool:
        """Whether the rows are; the values beside them stay."""
        return self.inputs[0].rereadable

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        names = [name for name in self.inputs[1].schema if name in self.schema]
        return f"WITH SCALARS ({', '.join(names)})"


@dataclass(eq=False, kw_only=True)
class CheckedOrder(Stream):
    """The first input, whose parts Polars takes for sorted, once their ends were seen to be in order over the ranks.

    The second input has one column: on all ranks, the first and the last value that is not null of each rank's part.

    Attributes
    ----------
    operation
        What Polars calls the step that needs the order, in its error.
    """

    operation: str

    @property
    def label(self) -> str:
        """One line for ``explain``."""
        return f"CHECK ORDER over the ranks by {', '.join(self.inputs[1].schema)}"


def walk(root: Stream) -> list[Stream]:
    """Return the streams under ``root``, each once, inputs first."""
    done: dict[Stream, None] = {}
    stack: list[tuple[Stream, bool]] = [(root, False)]
    while stack:
        stream, ready = stack.pop()
        if stream in done:
            continue
        if ready:
            done[stream] = None
            continue
        stack.append((stream, True))
        stack.extend((child, False) for child in reversed(stream.inputs))
    return list(done)

"""Range exchanges of the two sides of an as-of join, whose rows are sorted already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.errors import not_sorted
from cudf_polars.execute.ordered import SAMPLE_ROWS, Rows, common_boundaries, looked_at
from cudf_polars.execute.rows import DESTINATION, KeySample, StreamRows, addressed, detached
from cudf_polars.execute.streams import conform
from cudf_polars.execute.transport import Source
from cudf_polars.lower.physical import NeighbourExchange, RangeExchange, Schema, SortedExchange
from cudf_polars.lower.ranges import destination

__all__ = ["SortedRanges"]

_MERGED = 64
"""So many frames are collected before they are merged into one."""
_RANK = "__rr_rank"
"""The column (UInt32) with the rank that a row comes from."""
_IN_ORDER = "__rr_in_order"
"""The column (Boolean) that says whether the rows of a rank are sorted."""


class SortedRanges:
    """Runs range exchanges of sorted rows for an executor; every rank has to run the same ones in the same order.

    Parameters
    ----------
    ranges
        The boundaries of the exchanges that have run; :meth:`own_ranges` adds to them.
    """

    def __init__(self, executor: Rows, ranges: dict[SortedExchange, pl.DataFrame]) -> None:
        self._executor, self._ranges = executor, ranges

    def own_ranges(self, stream: SortedExchange) -> StreamRows:
        """Choose ranges with about equal numbers of rows, then send the rows."""
        self._executor.paths.took(paths.SORTED_RANGES)
        (key,), (below,), filled = stream.keys, stream.inputs, stream.filled
        keys = {filled: stream.schema[key.column]}
        order, sample = _Order(filled), KeySample((replace(key, column=filled),), SAMPLE_ROWS)

        def look(batch: pl.DataFrame) -> None:
            sample.look(batch)
            order.look(batch)

        source = looked_at(self._executor, below, keys, look)
        if isinstance(source, pl.LazyFrame):
            batches = self._executor.batches(source)
        else:
            batches = self._executor.passing(source, lambda rows: rows, below.schema)
        boundaries = common_boundaries(self._executor, sample.rows(keys), stream.keys)
        self._ranges[stream] = boundaries
        ends = self._check(stream.operation, order, keys)
        before = ends.filter(pl.col(_RANK) < self._executor.rank)
        first = (before.tail(1) if before.height else ends.head(1)).get_column(filled)
        moved = self._executor.scatter_batches(
            _without_nulls(batches, filled, key.column, first),
            stream.schema,
            _target(stream, boundaries),
        )
        return StreamRows(partitions=[[each] for each in moved], schema=addressed(stream.schema))

    def _check(self, operation: str, order: _Order, keys: Schema) -> pl.DataFrame:
        """Raise what Polars raises of unsorted rows, on all ranks; return the ends of each rank's rows, in order."""
        schema = {**keys, _IN_ORDER: pl.Boolean(), _RANK: pl.UInt32()}
        mine = order.ends(keys).with_columns(
            pl.lit(order.holds).alias(_IN_ORDER), pl.lit(self._executor.rank, pl.UInt32).alias(_RANK)
        )
        ends = self._executor.to_all(mine, schema)
        if not (ends[_IN_ORDER].all() and ends.to_series().is_sorted()):
            raise not_sorted(operation)
        return ends

    def ranges_of_another(self, stream: NeighbourExchange) -> StreamRows:
        """Send rows to the ranges of another exchange while they are read, and give each range its neighbours."""
        self._executor.paths.took(paths.SORTED_RANGES)
        self._executor.prepare(stream.like)
        (key,) = stream.keys
        target = _target(stream, self._ranges[stream.like])
        keys, sent = {key.column: stream.schema[key.column]}, addressed(stream.schema)
        order, neighbours = _Order(key.column), _Neighbours(key.column, stream.beside)

        def passing() -> Iterator[pl.DataFrame]:
            for batch in self._executor.batches_of(stream.inputs[0]):
                order.look(batch)
                found = batch.filter(pl.col(key.column).is_not_null()).with_columns(target)
                del batch  # or it would stay until the next one has been made
                neighbours.look(found)
                yield found
                del found

        moved = self._executor.scatter_batches(passing(), stream.schema)
        self._check(stream.operation, order, keys)
        before, behind = (
            merge([self._executor.to_all(mine, sent)])
            for merge, mine in zip(neighbours.merges, neighbours.finish(sent), strict=True)
        )
        count = self._executor.plan.count
        partitions: list[list[Source]] = []
        for number, rows in enumerate(moved, self._executor.rank * count):
            last = before.filter(pl.col(DESTINATION) < number).tail(1)
            following = behind.filter(pl.col(DESTINATION) > number).head(1)
            partitions.append(
                [self._executor.stored(last, sent), rows, self._executor.stored(following, sent)]
            )
        return StreamRows(partitions=partitions, schema=sent)


class _Order:
    """Sees whether rows that pass are sorted by a column, as Polars does: wherever nulls are."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._ends: list[pl.DataFrame] = []  # the first row and the last one so far
        self.holds = True

    def look(self, batch: pl.DataFrame) -> None:
        """See the next rows."""
        keys = batch.select(self._column).drop_nulls()
        if not keys.height:
            return
        first, last = keys.head(1), detached(keys.tail(1))
        if self._ends:
            self.holds &= pl.concat([self._ends[1], first]).to_series().is_sorted()
        self.holds &= keys.to_series().is_sorted()
        self._ends = [self._ends[0] if self._ends else detached(first), last]

    def ends(self, schema: Schema) -> pl.DataFrame:
        """Return the first row and the last one; none if there were none."""
        return pl.concat([pl.DataFrame(schema=dict(schema)), *(conform(each, schema) for each in self._ends)])


class _Neighbours:
    """Collects two rows of each range, for its neighbours: its last row, and one of those with its first key.

    Parameters
    ----------
    column
        The key, by which the rows are sorted; it has no nulls.
    beside
        Which of the rows with the first key.
    """

    def __init__(self, column: str, beside: Literal["first", "last"]) -> None:
        self._column, self._beside = column, beside
        self._lasts: list[pl.DataFrame] = []
        self._firsts: list[pl.DataFrame] = []
        self.merges = (self._last_of_ranges, self._first_of_ranges)

    def look(self, rows: pl.DataFrame) -> None:
        """See the next rows, with their ranges."""
        for frames, merge in zip((self._lasts, self._firsts), self.merges, strict=True):
            frames.append(detached(merge([rows])))
            if len(frames) >= _MERGED:
                frames[:] = [merge(frames)]

    def finish(self, schema: Schema) -> Iterator[pl.DataFrame]:
        """Yield the last row of each range, then the row with its first key; a range without rows has none."""
        nothing = pl.DataFrame(schema=dict(schema))
        for frames, merge in zip((self._lasts, self._firsts), self.merges, strict=True):
            yield merge([nothing, *(conform(each, schema) for each in frames)])

    def _last_of_ranges(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(frames).unique(DESTINATION, keep="last", maintain_order=True)

    def _first_of_ranges(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        rows = pl.concat(frames)
        if self._beside == "last":
            rows = rows.filter(pl.col(self._column) == pl.col(self._column).first().over(DESTINATION))
        return rows.unique(DESTINATION, keep=self._beside, maintain_order=True)


def _target(stream: RangeExchange, boundaries: pl.DataFrame) -> pl.Expr:
    """Return the partition of a row, over all ranks."""
    return destination(stream.keys, boundaries, stream.schema, by_search=True).alias(DESTINATION)


def _without_nulls(
    batches: Iterator[pl.DataFrame], column: str, filled: str, value: pl.Series
) -> Iterator[pl.DataFrame]:
    """Yield batches with a column in which the nulls of another one have the value before them.

    Parameters
    ----------
    value
        The value of the first rows, if they have none; empty where no row has any.
    """
    for batch in batches:
        keys = batch.get_column(column)
        if keys.null_count() and value.len():
            keys = keys.forward_fill().fill_null(value.new_from_index(0, keys.len()))
        if keys.len():
            value = detached(keys.tail(1).to_frame()).to_series()
        yield batch.with_columns(keys.alias(filled))
        del batch  # or it would stay until the next one has been made

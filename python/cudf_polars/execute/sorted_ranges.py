"""Range exchanges of rows that are sorted already, whose partitions have rows of their neighbours: for as-of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.errors import not_sorted
from cudf_polars.execute.ordered import SAMPLE_ROWS, Rows, common_boundaries
from cudf_polars.execute.rows import DESTINATION, KeySample, StreamRows, addressed, detached
from cudf_polars.execute.streams import conform
from cudf_polars.execute.transport import Source
from cudf_polars.lower.physical import Schema, SortedExchange, Stream
from cudf_polars.lower.ranges import destination

__all__ = ["SortedRanges"]

_MERGED = 64
"""How many frames of single rows are merged at a time."""
_RANK = "__rr_rank"
"""The column (UInt32) that says whose row it is."""
_IN_ORDER = "__rr_in_order"
"""The column (Boolean) that says whether the rows of a rank are sorted."""


class SortedRanges:
    """Runs these exchanges for an executor; all ranks run the same in the same order.

    Parameters
    ----------
    ranges
        By exchange, the first keys of its ranges but the first: what was run is put in.
    """

    def __init__(self, executor: Rows, ranges: dict[SortedExchange, pl.DataFrame]) -> None:
        self._executor, self._ranges = executor, ranges

    def exchange(self, stream: SortedExchange) -> StreamRows:
        """Send each row to the partition of its range."""
        self._executor.paths.took(paths.SORTED_RANGES)
        if stream.like is not None:
            self._executor.prepare(stream.like)
            return self._ranges_of_another(stream, self._ranges[stream.like], stream.beside or "first")
        assert stream.filled is not None
        return self._own_ranges(stream, stream.filled)

    def _target(self, stream: SortedExchange, boundaries: pl.DataFrame) -> pl.Expr:
        found = destination(stream.keys, boundaries, stream.schema, by_search=True)
        return found.alias(DESTINATION)

    def _own_ranges(self, stream: SortedExchange, filled: str) -> StreamRows:
        """Choose ranges by the keys of all rows, and send these then."""
        (key,), (below,) = stream.keys, stream.inputs
        keys = {filled: stream.schema[key.column]}
        order, sample = _Order(filled), KeySample((replace(key, column=filled),), SAMPLE_ROWS)

        def look(batch: pl.DataFrame) -> None:
            sample.look(batch)
            order.look(batch)

        batches = self._seen(below, keys, look)
        boundaries = common_boundaries(self._executor, sample.rows(keys), stream.keys)
        self._ranges[stream] = boundaries
        ends = self._check(stream, order, keys)
        before = ends.filter(pl.col(_RANK) < self._executor.rank)
        first = (before.tail(1) if before.height else ends.head(1)).get_column(filled)
        moved = self._executor.scatter_batches(
            _without_nulls(batches, filled, key.column, first),
            stream.schema,
            self._target(stream, boundaries),
        )
        return StreamRows(partitions=[[each] for each in moved], schema=addressed(stream.schema))

    def _seen(
        self, below: Stream, keys: Schema, look: Callable[[pl.DataFrame], None]
    ) -> Iterator[pl.DataFrame]:
        """Let ``look`` see the keys of all rows of a fragment on this rank; return these rows, which are read then."""
        source = self._executor.taken_back(below)
        if source is None:
            rows, _ = self._executor.kept(below, look)
            return self._executor.batches(rows)
        for batch in self._executor.passing(source, lambda rows: rows.select(list(keys)), keys):
            look(batch)
        return self._executor.passing(source, lambda rows: rows, below.schema)

    def _check(self, stream: SortedExchange, order: _Order, keys: Schema) -> pl.DataFrame:
        """Raise what Polars raises of unsorted rows, on all ranks; return the ends of each rank's rows, in order."""
        schema = {**keys, _IN_ORDER: pl.Boolean(), _RANK: pl.UInt32()}
        mine = order.ends(keys).with_columns(
            pl.lit(order.holds).alias(_IN_ORDER), pl.lit(self._executor.rank, pl.UInt32).alias(_RANK)
        )
        ends = self._executor.to_all(conform(mine, schema), schema)
        if not (ends[_IN_ORDER].all() and ends.to_series().is_sorted()):
            raise not_sorted(stream.operation)
        return ends

    def _ranges_of_another(
        self, stream: SortedExchange, boundaries: pl.DataFrame, beside: Literal["first", "last"]
    ) -> StreamRows:
        """Send rows to known ranges while they are read, and add rows of other ranges to those of this rank."""
        (key,) = stream.keys
        target = self._target(stream, boundaries)
        keys, sent = {key.column: stream.schema[key.column]}, addressed(stream.schema)
        order, neighbours = _Order(key.column), _Neighbours(key.column, beside)

        def passing() -> Iterator[pl.DataFrame]:
            for batch in self._executor.batches_of(stream.inputs[0]):
                order.look(batch)
                found = batch.filter(pl.col(key.column).is_not_null()).with_columns(target)
                del batch  # or it would stay until the next one has been made
                neighbours.look(found)
                yield found
                del found

        moved = self._executor.scatter_batches(passing(), stream.schema)
        self._check(stream, order, keys)
        before, behind = (
            merge([self._executor.to_all(conform(mine, sent), sent)])
            for merge, mine in zip(neighbours.merges, neighbours.finish(sent), strict=True)
        )
        count = self._executor.plan.count
        partitions: list[list[Source]] = []
        for number, rows in enumerate(moved, self._executor.rank * count):
            last = before.filter(pl.col(DESTINATION) < number).tail(1)
            following = behind.filter(pl.col(DESTINATION) > number).head(1)
            sources = [
                rows if each is None else self._executor.stored(each, sent)
                for each in (last, None, following)
            ]
            partitions.append(sources)
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
    """Collects, of rows that pass, those that are beside other ranges: by range, at most one of each side.

    Parameters
    ----------
    column
        The key, by which the rows are sorted; it has no nulls.
    beside
        Which row of those with the first key of a range is beside the range before it.
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
        """Yield what is beside the ranges behind, and beside those before."""
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

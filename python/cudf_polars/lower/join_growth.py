"""Joins that give many times the rows of their sides: what one rank has to know before it runs a query.

Tables that fit in memory may have a join that does not. How many rows it gives follows from how many values its keys
have: of numbers and dates, footers bound them; of other keys, and where no side's keys are distinct, samples of the
tables are counted. Of tables in text files, and of keys that are computed, nothing is known: they are taken to be
foreign keys, whose rows find one partner each.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from cudf_polars.lower.aggregates import decompose
from cudf_polars.lower.column_bounds import column_range
from cudf_polars.lower.estimates import AGGREGATED, FILTERED, GroupCount, row_width
from cudf_polars.lower.footers import FooterError, Footers, read_row_groups
from cudf_polars.lower.node_properties import is_row_step
from cudf_polars.lower.origins import origin_of, renamed
from cudf_polars.lower.physical import Estimate
from cudf_polars.lower.table_sizes import table_rows
from cudf_polars.plan.cloud import is_remote
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.expressions import Column, NamedExpr
from cudf_polars.plan.file_versions import file_version
from cudf_polars.plan.nodes import (
    DataFrameScan,
    Distinct,
    Filter,
    GroupBy,
    HStack,
    Join,
    Node,
    Scan,
    Select,
    SimpleProjection,
    Slice,
    Sort,
    Union,
)
from cudf_polars.plan.properties import is_scalar

__all__ = ["largest_growing_join"]

_GROWS = 2.0
"""A join that gives so many times the rows of its larger side grows."""
_DENSE = 8.0
"""A column of numbers with at most so many possible values for each row is taken for one of distinct values, or for one
whose values are all there. Those of hashes and of points in time lie further apart."""
_SAMPLE_ROWS = 1 << 14
"""Rows of each of the two samples of a table: the first, and some from its middle."""
_FREQUENT = 0.01
"""A key that so large a part of a sample has is counted by itself."""
_CACHED_SAMPLES = 1_000


def largest_growing_join(
    plan: Plan,
    footers: Footers | None,
    frames: Mapping[int, Estimate],
    worth: float,
    *,
    is_streamed: bool,
    groups_at_once: float,
) -> float:
    """Return the bytes of the largest result of a join that has several times the rows of its sides, as estimated.

    Results whose rows are not kept do not count: they are filtered or written, or aggregated to few groups.

    Parameters
    ----------
    footers
        As for :func:`~cudf_polars.lower.table_sizes.largest_table`.
    frames
        Rows and bytes of in-memory frames, by the number of their nodes.
    worth
        Results of fewer bytes do not matter: samples are not read for them.
    is_streamed
        Whether the rows of the plan itself are written, not kept.
    groups_at_once
        Of how many groups Polars keeps no more than one result each while it aggregates rows.
    """
    if not any(isinstance(node, Join) for node in plan.nodes):
        return 0.0
    growth = _Growth(plan, footers, frames, worth)
    kept = growth.kept(is_streamed=is_streamed, groups_at_once=groups_at_once) if growth.joins else []
    return max((nbytes for number, nbytes in growth.joins.items() if kept[number]), default=0.0)


class _Rows(NamedTuple):
    """Rows of a step, and of them those with a key that may have a partner."""

    all: float
    with_key: float


@dataclass(frozen=True)
class _Keys:
    """The keys of one side of a join.

    Attributes
    ----------
    origins
        The tables that they come from, with the names that they have there; None: they are computed.
    most
        How many values they have at most.
    is_exact
        Whether about so many are there.
    bounds
        The least and the greatest value of a single key that is a number or a date.
    """

    origins: Mapping[Scan | DataFrameScan, Sequence[str]] | None
    most: float
    is_exact: bool
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Sample:
    """The keys in two samples of a table.

    Attributes
    ----------
    counts
        The columns of the key, and how many rows of the samples have it (the last column).
    with_key
        The part of the rows in which no key is null.
    groups
        What the samples have in common.
    """

    counts: pl.DataFrame
    with_key: float
    groups: GroupCount


class _Growth:
    """Goes through a plan, inputs first.

    Attributes
    ----------
    joins
        By number, the bytes that joins give which have several times the rows of their sides.
    """

    def __init__(
        self, plan: Plan, footers: Footers | None, frames: Mapping[int, Estimate], worth: float
    ) -> None:
        self._plan, self._footers, self._frames, self._worth = plan, footers, frames, worth
        self._rows: list[float] = []
        self.joins: dict[int, float] = {}
        for number, node in enumerate(plan.nodes):
            self._rows.append(self._rows_of(number, node))

    def _rows_of(self, number: int, node: Node) -> float:
        below = [self._rows[self._number(child)] for child in node.children]
        match node:
            case Scan():
                rows = table_rows(node, self._footers)
                if node.slice is not None:
                    rows = min(rows, node.slice[1])
                return rows if node.predicate is None else rows * FILTERED
            case DataFrameScan():
                return self._frames[number].rows
            case Join():
                return self._joined(node, *below)
            case Filter():
                return below[0] * FILTERED
            case GroupBy():
                return min(below[0], max(1.0, self._groups(node, below[0])))
            case Distinct() if node.subset is not None:
                return min(below[0], self._keys(node.child, node.subset, below[0]).most)
            case Slice():
                return min(below[0], node.length)
            case Select() if all(map(is_scalar, node.expressions)):
                return 1.0
            case Union():
                return sum(below)
            case _:
                return max(below, default=0.0)

    def kept(self, *, is_streamed: bool, groups_at_once: float) -> list[bool]:
        """Return, by number, whether the rows of a step are kept by one that comes after it."""
        kept = [False] * len(self._plan.nodes)
        kept[-1] = not is_streamed
        for number in reversed(range(len(kept))):  # what is above comes first
            node = self._plan.nodes[number]
            for place, child in enumerate(node.children):
                below = self._number(child)
                match node:
                    case GroupBy():
                        in_parts = _is_aggregated_in_parts(node.aggs)
                        keeps = not (in_parts and self._most_groups(node) <= groups_at_once)
                    case Select() if all(map(is_scalar, node.expressions)):
                        keeps = not _is_aggregated_in_parts(node.exprs)
                    case Slice():
                        keeps = node.offset < 0
                    case Sort():
                        keeps = node.slice is None
                    case Join():
                        # One side waits for the other, in a table; that there are fewer of its rows is not known.
                        keeps = kept[number] or place != self._streamed_side(node)
                    case _ if is_row_step(node):
                        keeps = kept[number]
                    case _:
                        keeps = True
                kept[below] = kept[below] or keeps
        return kept

    def _streamed_side(self, node: Join) -> int | None:
        """Return the side of a join whose rows pass while those of the other wait: the one with more of them."""
        if node.how in ("asof", "ie"):
            return None
        left, right = (self._rows[self._number(child)] for child in node.children)
        return 0 if left >= right else 1

    def _number(self, node: Node) -> int:
        number = self._plan.number(node)
        assert number is not None
        return number

    def _groups(self, node: GroupBy, rows: float) -> float:
        keys = self._keys_of_groups(node, rows)
        return keys.most if keys.is_exact else rows * AGGREGATED

    def _most_groups(self, node: GroupBy) -> float:
        """Return about how many groups there are; that of the rows if nothing is known."""
        rows = self._rows[self._number(node.child)]
        keys = self._keys_of_groups(node, rows)
        sample = None if keys.is_exact else self._sample(keys, nulls_equal=True)
        groups = keys.most if sample is None else sample.groups.groups(rows)
        return groups

    def _keys_of_groups(self, node: GroupBy, rows: float) -> _Keys:
        names = [key.expr.name for key in node.keys if isinstance(key.expr, Column)]
        if len(names) < len(node.keys):
            return _Keys(None, rows, is_exact=False)
        return self._keys(node.child, names, rows)

    # -- joins -----------------------------------------------------------------------------------------------------

    def _joined(self, node: Join, left: float, right: float) -> float:
        width = row_width(node.schema)
        match node.how:
            case "cross":
                rows = left * right
            case "inner" | "left" | "right" | "full":
                rows = max(left, right, self._matches(node, left, right, self._worth / width))
            case _:
                return left
        if node.slice is not None and node.slice[0] >= 0:
            rows = min(rows, sum(node.slice))  # no more of them are made
        if rows >= _GROWS * max(left, right, 1.0):
            self.joins[self._number(node)] = rows * width
        return rows if node.slice is None else min(rows, node.slice[1])

    def _matches(self, node: Join, left: float, right: float, worth: float) -> float:
        """Return how many pairs of rows have equal keys."""
        pairs = [
            (a.expr.name, b.expr.name)
            for a, b in zip(node.left_on, node.right_on, strict=True)
            if isinstance(a.expr, Column) and isinstance(b.expr, Column)
        ]
        if left * right <= worth or len(pairs) < len(node.left_on):
            return 0.0
        names = [a for a, _ in pairs], [b for _, b in pairs]
        if _are_distinct(node.left, names[0]) or _are_distinct(node.right, names[1]):
            return 0.0
        ours = self._keys(node.left, names[0], left)
        theirs = self._keys(node.right, names[1], right)
        overlap = _overlap(ours, theirs)
        distinct = max((keys.most for keys in (ours, theirs) if keys.is_exact), default=1.0)
        if left * right * overlap / max(1.0, distinct) <= max(worth, _GROWS * max(left, right)):
            return 0.0
        samples = [self._sample(keys, nulls_equal=node.nulls_equal) for keys in (ours, theirs)]
        values, found = [], []
        for keys, rows, sample in zip((ours, theirs), (left, right), samples, strict=True):
            most, with_key = keys.most, rows
            if sample is not None:
                most = min(most, sample.groups.groups(rows))
                with_key = rows * sample.with_key
            values.append(most)
            found.append(with_key)
        return found[0] * found[1] * max(overlap / max(1.0, *values), _frequent_together(*samples))

    def _keys(self, node: Node, names: Sequence[str], rows: float) -> _Keys:
        """Return what is known of some columns of ``node``, which has so many rows, as far as footers tell."""
        origins: dict[Scan | DataFrameScan, list[str]] = {}
        for name in names:
            found = origin_of(node, name)
            if found is None:
                return _Keys(None, rows, is_exact=False)
            origins.setdefault(found[0], []).append(found[1])
        most, is_exact = 1.0, True
        bounds = None
        for table, columns in origins.items():
            height = self._height(table)
            values = 1.0
            for column in columns:
                bounds = self._range(table, column)
                possible = math.inf if bounds is None else float(bounds[1] - bounds[0] + 1)
                is_exact = is_exact and possible <= _DENSE * max(1.0, height)
                values *= possible
            most *= min(height, values)
        return _Keys(
            origins, max(1.0, min(rows, most)), is_exact, bounds if len(names) == 1 and is_exact else None
        )

    def _height(self, table: Scan | DataFrameScan) -> float:
        if isinstance(table, Scan):
            return table_rows(table, self._footers)
        return self._frames[self._number(table)].rows

    def _range(self, table: Scan | DataFrameScan, column: str) -> tuple[int, int] | None:
        """Return the least and the greatest value of a column of integers or days, as numbers."""
        dtype = table.schema.get(column)
        if dtype is None or not (dtype.is_integer() or dtype == pl.Date):
            return None
        if isinstance(table, DataFrameScan):
            values = table.frame.get_column(column)
            return _numbers(values.min(), values.max())
        if table.kind != "parquet":
            return None
        found = column_range(table.paths, table.cloud, column, self._footers)
        return None if found is None else _numbers(*found)

    def _sample(self, keys: _Keys, *, nulls_equal: bool) -> _Sample | None:
        """Count keys in samples of the table that they come from."""
        if keys.origins is None or len(keys.origins) > 1:
            return None
        ((table, columns),) = keys.origins.items()
        if isinstance(table, DataFrameScan):
            frame = table.frame.select(columns)
            parts = (
                frame.head(_SAMPLE_ROWS),
                frame.slice(max(_SAMPLE_ROWS, frame.height // 2), _SAMPLE_ROWS),
            )
            return _counted(*parts, nulls_equal=nulls_equal)
        if table.kind != "parquet" or any(map(is_remote, table.paths)) or not table.paths:
            return None
        middle = table.paths[len(table.paths) // 2]
        files = tuple((path, *file_version(path)) for path in (table.paths[0], middle))
        return _sample_of_files(*files, columns=tuple(columns), nulls_equal=nulls_equal)


def _are_distinct(node: Node, names: Sequence[str]) -> bool:
    """Whether no two rows of ``node`` have the same values in these columns, because one was made of each group."""
    wanted: set[str | None] = {*names}
    while True:
        match node:
            case Distinct():
                return wanted.issuperset(node.subset or node.schema)
            case GroupBy(dynamic=None, rolling=None):
                return wanted.issuperset(key.name for key in node.keys)
            case Join(how="semi" | "anti"):
                node = node.left
            case Filter() | SimpleProjection() | Slice() | Sort() | Select() | HStack():
                wanted = {renamed(node, name) for name in wanted if name is not None}
                node = node.child
            case _:
                return False


def _is_aggregated_in_parts(exprs: Sequence[NamedExpr]) -> bool:
    """Whether aggregates can be made of partial results, so that rows are not kept for them."""
    split = decompose(exprs)
    return split is not None and split.distinct is None


def _numbers(least: object, greatest: object) -> tuple[int, int] | None:
    """Return two values as numbers, if they are integers or days."""
    low, high = (
        value.toordinal() if isinstance(value, datetime.date) else value for value in (least, greatest)
    )
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _overlap(left: _Keys, right: _Keys) -> float:
    """Return the part of the pairs of keys that may be equal by their bounds, if all values were there."""
    if left.bounds is None or right.bounds is None:
        return 1.0
    (low, high), (least, greatest) = left.bounds, right.bounds
    common = max(0, min(high, greatest) - max(low, least) + 1)
    return common / min(high - low + 1, greatest - least + 1)


def _frequent_together(left: _Sample | None, right: _Sample | None) -> float:
    """Return the part of the pairs of rows that have the same key of those that are frequent on both sides."""
    if left is None or right is None:
        return 0.0
    ours, theirs = _frequent(left), _frequent(right)
    keys = ours.columns[:-1]
    theirs = theirs.rename(dict(zip(theirs.columns, ours.columns, strict=True)))
    if ours.select(keys).schema != theirs.select(keys).schema:
        return 0.0
    both = ours.join(theirs, on=keys, how="inner", nulls_equal=True)
    return float((both.to_series(-2) * both.to_series(-1)).sum())


def _frequent(sample: _Sample) -> pl.DataFrame:
    """Return the frequent keys with the part of the rows that each has."""
    part = pl.last() / max(1.0, sample.groups.rows)
    return sample.counts.filter(part >= _FREQUENT).with_columns(part)


@functools.lru_cache(maxsize=_CACHED_SAMPLES)
def _sample_of_files(
    first: tuple[str | int, ...],
    middle: tuple[str | int, ...],
    *,
    columns: tuple[str, ...],
    nulls_equal: bool,
) -> _Sample | None:
    """Count keys in the first rows of a Parquet file, and in rows from the middle of another, or of the same."""
    try:
        starts = list(
            itertools.accumulate((group.rows for group in read_row_groups(str(middle[0]))), initial=0)
        )
        # To skip rows inside of a row group takes as long as to read them.
        start = starts[len(starts) // 2] if len(starts) > 2 else starts[-1] // 2
        if first == middle:
            start = max(_SAMPLE_ROWS, start)
        # One by one: what Polars runs together reads a file that is in both as a whole.
        parts = [
            pl.scan_parquet(str(path), glob=False, hive_partitioning=False)
            .slice(offset, _SAMPLE_ROWS)
            .select(columns)
            .collect(engine="streaming")
            for (path, *_), offset in ((first, 0), (middle, start))
        ]
        return _counted(*parts, nulls_equal=nulls_equal)
    except (FooterError, pl.exceptions.PolarsError, OSError):
        return None  # columns that come from paths, say


def _counted(first: pl.DataFrame, second: pl.DataFrame, *, nulls_equal: bool) -> _Sample:
    keys = [f"{i}" for i in range(first.width)]
    parts = [part.rename(dict(zip(part.columns, keys, strict=True))) for part in (first, second)]
    rows = pl.concat([part.with_columns(first=pl.lit(number == 0)) for number, part in enumerate(parts)])
    known = rows if nulls_equal else rows.drop_nulls(keys)
    groups = known.group_by(keys).agg(
        pl.col("first").any().alias("in_first"),
        pl.col("first").not_().any().alias("in_second"),
        pl.len().alias("rows"),
    )
    times = groups.get_column("rows")
    return _Sample(
        groups.select(*keys, "rows"),
        known.height / max(1, rows.height),
        GroupCount(
            float(known.height),
            float(groups.get_column("in_first").sum()),
            float(groups.get_column("in_second").sum()),
            float(groups.height),
            *(float((times == n).sum()) for n in (1, 2, 3)),
        ),
    )

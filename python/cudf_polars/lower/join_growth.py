"""Joins whose result has many times the rows of their inputs, estimated before a query runs.

Tables that fit in memory may have a join that does not. How many rows it gives follows from how many values its keys
have: of numbers and dates, footers bound them; of other keys, and where no side's keys are distinct, samples of the
tables are counted. Where nothing is known, of keys that are computed from several tables, say, each row is taken to
find one partner, as those of foreign keys do.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.lower.aggregates import decompose
from cudf_polars.lower.column_bounds import column_range
from cudf_polars.lower.estimates import AGGREGATED, FILTERED, row_width
from cudf_polars.lower.footers import Footers
from cudf_polars.lower.key_samples import (
    KeySample,
    frequent_together,
    sample_of_steps,
    sample_of_table,
)
from cudf_polars.lower.node_properties import is_row_step
from cudf_polars.lower.origins import origin_of, renamed
from cudf_polars.lower.physical import Estimate
from cudf_polars.lower.table_sizes import table_rows
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.expressions import Column, Expr, NamedExpr
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

__all__ = ["GrowingJoin", "growing_joins"]

_GROWS = 2.0
"""A join that gives so many times the rows of its larger side grows."""
_DENSE = 8.0
"""A column of numbers with at most so many possible values for each row is taken for one of distinct values, or for one
whose values are all there. Those of hashes and of points in time lie further apart."""


@dataclass(frozen=True)
class GrowingJoin:
    """A join whose result is expected to have several times the rows of its inputs.

    Attributes
    ----------
    rows, nbytes
        What it gives.
    is_kept
        Whether all of it is kept by a step that follows; else rows are filtered or written while they are made, or
        aggregated to few groups.
    """

    rows: float
    nbytes: float
    is_kept: bool


def growing_joins(
    plan: Plan,
    footers: Footers | None,
    frames: Mapping[int, Estimate],
    worth: float,
    *,
    is_streamed: bool,
    groups_at_once: float,
) -> dict[int, GrowingJoin]:
    """Return, by number of the node, the joins that give several times the rows of their sides, as estimated.

    Parameters
    ----------
    footers
        As for :func:`~cudf_polars.lower.table_sizes.largest_table`.
    frames
        Rows and bytes of in-memory frames, by the number of their nodes.
    worth
        Results of fewer bytes do not matter: they are left out, and samples are not read for them.
    is_streamed
        Whether the rows of the plan itself are written, not kept.
    groups_at_once
        Of how many groups Polars keeps no more than one result each while it aggregates rows.
    """
    if not any(isinstance(node, Join) for node in plan.nodes):
        return {}
    growth = _Growth(plan, footers, frames, worth)
    found = {number: size for number, size in growth.joins.items() if size.nbytes > worth}
    if not found:
        return {}
    kept = growth.kept(is_streamed=is_streamed, groups_at_once=groups_at_once)
    return {number: GrowingJoin(size.rows, size.nbytes, kept[number]) for number, size in found.items()}


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


class _Growth:
    """Goes through a plan, inputs first.

    Attributes
    ----------
    joins
        By number, what joins give that have several times the rows of their sides.
    """

    def __init__(
        self, plan: Plan, footers: Footers | None, frames: Mapping[int, Estimate], worth: float
    ) -> None:
        self._plan, self._footers, self._frames, self._worth = plan, footers, frames, worth
        self._rows: list[float] = []
        self.joins: dict[int, Estimate] = {}
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
                        # The build side is kept in a hash table. Which side Polars builds from is estimated.
                        keeps = kept[number] or place != self._streamed_side(node)
                    case _ if is_row_step(node):
                        keeps = kept[number]
                    case _:
                        keeps = True
                kept[below] = kept[below] or keeps
        return kept

    def _streamed_side(self, node: Join) -> int | None:
        """Return the probe side of a join, which is taken to be the side with more rows; ``None``: both are kept."""
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
        sample = None
        if not keys.is_exact:
            exprs = [key.expr for key in node.keys]
            sample = self._sample(node.child, exprs, keys, nulls_equal=True)
        return keys.most if sample is None else sample.groups.groups(rows)

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
            self.joins[self._number(node)] = Estimate(rows, rows * width)
        return rows if node.slice is None else min(rows, node.slice[1])

    def _matches(self, node: Join, left: float, right: float, worth: float) -> float:
        """Return how many pairs of rows have equal keys."""
        if left * right <= worth or node.validate != "m:m":
            return 0.0
        sides = []
        for child, given, rows in ((node.left, node.left_on, left), (node.right, node.right_on, right)):
            names = [key.expr.name for key in given if isinstance(key.expr, Column)]
            if len(names) < len(given):
                sides.append(_Keys(None, rows, is_exact=False))
            elif _are_distinct(child, names):
                return 0.0
            else:
                sides.append(self._keys(child, names, rows))
        overlap = _overlap(*sides)
        distinct = max((keys.most for keys in sides if keys.is_exact), default=1.0)
        few = max(worth, _GROWS * max(left, right))
        if left * right * overlap / max(1.0, distinct) <= few:
            return 0.0
        most, found, samples = 1.0, 1.0, []
        # The side with fewer rows may have distinct keys: then the other one need not be read.
        for side in sorted((0, 1), key=(left, right).__getitem__):
            keys, rows = sides[side], (left, right)[side]
            exprs = [key.expr for key in (node.left_on, node.right_on)[side]]
            sample = self._sample(node.children[side], exprs, keys, nulls_equal=node.nulls_equal)
            samples.append(sample)
            values = keys.most
            if sample is not None:
                rows = rows if sample.height is None else sample.height
                values = min(values, sample.groups.groups(rows))
                rows *= sample.with_key
                if not sample.frequent.height and left * right * overlap / max(1.0, values) <= few:
                    return 0.0
            most, found = max(most, values), found * rows
        first, second = samples
        together = 0.0 if first is None or second is None else frequent_together(first, second)
        return found * max(overlap / most, together)

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

    def _sample(
        self, node: Node, exprs: Sequence[Expr], keys: _Keys, *, nulls_equal: bool
    ) -> KeySample | None:
        """Count keys of ``node`` in samples of the table that they come from."""
        start = _start_of(node)
        if start is not None and not (keys.origins and _keeps_all(node) and _is_parquet_or_frame(start)):
            return sample_of_steps(node, start, self._height(start), exprs, nulls_equal=nulls_equal)
        if keys.origins is None or len(keys.origins) > 1:
            return None
        ((table, names),) = keys.origins.items()
        return sample_of_table(table, names, nulls_equal=nulls_equal)


def _start_of(node: Node) -> Scan | DataFrameScan | None:
    """Return the table that ``node`` is made of row by row."""
    while is_row_step(node):
        (node,) = node.children
    return node if isinstance(node, Scan | DataFrameScan) else None


def _keeps_all(node: Node) -> bool:
    """Whether row by row steps leave none of a table's rows out."""
    while not isinstance(node, Scan | DataFrameScan):
        if isinstance(node, Filter):
            return False
        (node,) = node.children
    return isinstance(node, DataFrameScan) or (node.predicate is None and node.slice is None)


def _is_parquet_or_frame(table: Scan | DataFrameScan) -> bool:
    return isinstance(table, DataFrameScan) or table.kind == "parquet"


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

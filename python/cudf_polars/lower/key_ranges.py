"""Files that are sorted by a key: ranks read ranges of its values, so that equal keys are collocated from the start.

Tables of a database, of events, of orders are mostly written in the order of a key, which the bounds of their row
groups show. Then the boundaries between the ranks' shares may lie between values as well as between rows, and what is
grouped or joined by the key needs no exchange. Tables that are joined by such keys are split at the same values. Where
rows do not fit in memory, the partitions of a rank are such ranges, too, and no row goes to disk.

What is decided here follows from the plan and from footers alone, so that all ranks decide the same.
"""

from __future__ import annotations

import bisect
import datetime
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl

from cudf_polars.lower.column_bounds import ColumnBounds, ascending_bounds, follows_position
from cudf_polars.lower.footers import FooterError, Footers, RowGroup, row_groups
from cudf_polars.lower.order import order_demands
from cudf_polars.lower.shape import renames, windows
from cudf_polars.lower.shares import RowShare, one_share, share_of_rows
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import (
    Distinct,
    Filter,
    GroupBy,
    HStack,
    Join,
    Node,
    Scan,
    Select,
    SimpleProjection,
    Sort,
)
from cudf_polars.plan.properties import columns

__all__ = ["KeyRange", "find_key_ranges"]

_MOVED = 0.1
"""A boundary is moved by this part of a rank's share, if then no row group has rows on both sides of it."""


@dataclass(frozen=True)
class _Limits:
    """How unevenly a table may be split.

    Attributes
    ----------
    uneven_ranks
        How many times the mean of the ranks one of them may read.
    uneven_partitions
        How many times its even share of the bytes a partition may read, where ranks have several.
    read_again
        How many times the bytes of the table all partitions may read: a row group with a boundary is read twice, which
        costs less than to move rows.
    """

    uneven_ranks: float
    uneven_partitions: float
    read_again: float


_OF_LEADER = _Limits(1.25, 2.0, 1.25)
"""Of the table whose values are the boundaries."""
_OF_FOLLOWER = _Limits(1.5, 4.0, 3.0)
"""Of the other tables, which are split at the values of that one."""

_ROWS_OF_GROUP = 16
"""How many rows a group may have for a table of all groups to be too large for the processor's cache."""

_Place: TypeAlias = tuple[Scan, str]
"""A column of a scan."""


@dataclass(frozen=True)
class KeyRange:
    """How a scan is split by the values of a column: over the ranks, and over the partitions of each.

    Attributes
    ----------
    column
        Its name.
    partitions
        How many each rank has. Those of all ranks are counted on.
    boundaries
        The first value of each partition's range but the first one's.
    shares
        By partition, the rows of the row groups that hold its range.
    filtered
        By partition, whether these hold rows of other ranges, too.
    """

    column: str
    partitions: int
    boundaries: tuple[Any, ...]
    shares: tuple[RowShare, ...]
    filtered: tuple[bool, ...]

    def of_ranks(self) -> KeyRange:
        """Return how the scan is split over the ranks."""
        if self.partitions == 1:
            return self
        of_rank = [
            slice(first, first + self.partitions) for first in range(0, len(self.shares), self.partitions)
        ]
        return KeyRange(
            self.column,
            1,
            tuple(self.boundaries[self.partitions - 1 :: self.partitions]),
            tuple(one_share(self.shares[part]) for part in of_rank),
            tuple(any(self.filtered[part]) for part in of_rank),
        )

    def predicate(self, partition: int, dtype: pl.DataType) -> pl.Expr | None:
        """Return which of the rows that a partition reads are in its range; ``None`` if all are."""
        if not self.filtered[partition]:
            return None
        key = pl.col(self.column)
        chosen = pl.lit(True)
        if partition > 0:
            chosen = key >= pl.lit(self.boundaries[partition - 1], dtype=dtype)
        if partition < len(self.boundaries):
            below = key < pl.lit(self.boundaries[partition], dtype=dtype)
            chosen = chosen & below if partition > 0 else below
        return chosen


@dataclass(frozen=True)
class _Table:
    """A scan whose files are sorted by a column."""

    scan: Scan
    column: str
    bounds: ColumnBounds
    files: Sequence[Sequence[RowGroup]]
    ordered: bool

    @functools.cached_property
    def groups(self) -> list[RowGroup]:
        """The row groups that have rows, as the bounds have them."""
        return [group for file in self.files for group in file if group.rows]

    @functools.cached_property
    def nbytes(self) -> int:
        """Uncompressed bytes of all row groups."""
        return sum(group.nbytes for group in self.groups)


@dataclass
class _Uses:
    """Where the columns of scans are keys.

    Attributes
    ----------
    alone
        Columns whose rows with equal values have to meet.
    joined
        Pairs whose rows have to meet with those of the other.
    """

    alone: dict[_Place, None] = field(default_factory=dict)
    joined: dict[tuple[_Place, _Place], None] = field(default_factory=dict)


def find_key_ranges(
    plan: Plan, footers: Footers, nranks: int, partitions: int = 1, cached_partitions: int = 1
) -> dict[int, KeyRange]:
    """Return, by number of the node, which scans of a plan are split by values.

    Parameters
    ----------
    partitions
        In how many partitions each rank has its rows.
    cached_partitions
        How many it should have of the only table of a plan, if that has many groups.
    """
    if cached_partitions > partitions > 1 and (scan := _only_scan(plan)) is not None:
        smaller = find_key_ranges(plan, footers, nranks, cached_partitions)
        if any(_has_many_groups(scan, by_key, footers) for by_key in smaller.values()):
            return smaller
    uses = _find_uses(plan)
    places = dict.fromkeys([*uses.alone, *itertools.chain.from_iterable(uses.joined)])
    if not places:
        return {}
    ordered = order_demands(plan)
    tables: dict[_Place, _Table] = {}
    for place in places:
        number = plan.number(place[0])
        table = None if number is None else _sorted_table(place, footers, nranks, ordered=ordered[number])
        if table is not None:
            tables[place] = table
    found: dict[int, KeyRange] = {}
    domains = _domains(tables, uses)
    for domain in sorted(domains, key=lambda each: -sum(table.nbytes for table in each)):
        members = [table for table in domain if plan.number(table.scan) not in found]
        for table, split in _split_domain(members, uses, footers, nranks, partitions):
            number = plan.number(table.scan)
            assert number is not None
            found[number] = split
    return found


def _only_scan(plan: Plan) -> Scan | None:
    """Return the scan of a plan that reads one table only.

    All steps of a fragment that has partitions must have the same number of them: of one table, all do.
    """
    first, *others = (node for node in plan.nodes if not node.children)
    return first if not others and isinstance(first, Scan) else None


def _has_many_groups(scan: Scan, by_key: KeyRange, footers: Footers) -> bool:
    """Whether few rows of a table have the same key, as far as the boundaries tell."""
    rows = sum(group.rows for group in row_groups(footers, scan.paths, scan.cloud))
    first, last = by_key.boundaries[0], by_key.boundaries[-1]
    values: int = (last - first).days if isinstance(first, datetime.date) else last - first
    return values * _ROWS_OF_GROUP >= rows


# -- which columns are keys -----------------------------------------------------------------------------------


def _find_uses(plan: Plan) -> _Uses:
    uses = _Uses()
    for node in plan.nodes:
        match node:
            case GroupBy():
                keys: Iterable[str] = (key.expr.name for key in node.keys if isinstance(key.expr, Column))
                uses.alone.update((place, None) for place in _origins(node.child, keys))
            case Distinct():
                subset = node.schema if node.subset is None else node.subset
                uses.alone.update((place, None) for place in _origins(node.child, subset))
            case Select() | HStack() | Filter():
                found = (window for expr in node.expressions for window in windows(expr))
                keys = (key.name for each in found for key in each.partition_by if isinstance(key, Column))
                uses.alone.update((place, None) for place in _origins(node.child, keys))
            case Join() if node.how not in ("cross", "ie", "asof"):
                for left, right in zip(node.left_on, node.right_on, strict=True):
                    if isinstance(left.expr, Column) and isinstance(right.expr, Column):
                        ours = _origin(node.left, left.expr.name)
                        theirs = _origin(node.right, right.expr.name)
                        if ours is not None and theirs is not None:
                            uses.joined[ours, theirs] = None
            case _:
                pass
    return uses


def _origins(node: Node, names: Iterable[str]) -> list[_Place]:
    return [place for place in (_origin(node, name) for name in names) if place is not None]


def _origin(node: Node | None, name: str) -> _Place | None:
    """Return the column of a scan whose values a column holds, as far as steps between them pass it on."""
    while node is not None and not isinstance(node, Scan):
        match node:
            case Filter() | SimpleProjection() | Sort() | Distinct():
                node = node.child
            case Select() | HStack():
                kept = renames(node, node.child.schema)
                old = next((old for old, new in kept.items() if name in new), None)
                if old is None:
                    return None
                node, name = node.child, old
            case GroupBy():
                keys = {key.name: key.expr.name for key in node.keys if isinstance(key.expr, Column)}
                if name not in keys:
                    return None
                node, name = node.child, keys[name]
            case Join() if name in node.left.schema:
                node = node.left
            case Join():
                if name not in node.right.schema:
                    name = name.removesuffix(node.suffix)
                if name not in node.right.schema:
                    return None
                node = node.right
            case _:
                return None
    return None if node is None else (node, name)


def _domains(tables: Mapping[_Place, _Table], uses: _Uses) -> list[list[_Table]]:
    """Return tables in sets such that those that are joined by their columns are in one."""
    parent: dict[_Place, _Place] = {place: place for place in tables}

    def top(place: _Place) -> _Place:
        while parent[place] != place:
            place = parent[place]
        return place

    for one, other in uses.joined:
        if one in tables and other in tables:
            parent[top(one)] = top(other)
    domains: dict[_Place, list[_Table]] = defaultdict(list)
    for place, table in tables.items():
        domains[top(place)].append(table)
    return list(domains.values())


# -- whether files are sorted ---------------------------------------------------------------------------------


def _sorted_table(place: _Place, footers: Footers, nranks: int, *, ordered: bool) -> _Table | None:
    """Return a scan of Parquet files whose row groups are in the order of a column without nulls."""
    scan, column = place
    dtype = scan.schema.get(column)
    if (
        scan.kind != "parquet"
        or scan.slice is not None
        or scan.row_index is not None
        or column == scan.include_file_paths
        or column in (scan.hive_columns or ())
        or dtype is None
        or not (dtype.is_integer() or dtype == pl.Date)
    ):
        return None
    try:
        files = [footers(path, scan.cloud) for path in scan.paths]
    except FooterError:
        return None
    if sum(group.rows > 0 for file in files for group in file) < nranks:
        return None
    kind = datetime.date if dtype == pl.Date else int
    bounds = ascending_bounds(scan.paths, scan.cloud, column, kind, footers)
    if bounds is None or _leaves_neighbours(scan, column, footers):
        return None
    return _Table(scan, column, bounds, files, ordered)


def _leaves_neighbours(scan: Scan, column: str, footers: Footers) -> bool:
    """Whether the predicate of a scan may leave rows of few ranges, so that the other ranks had none."""
    used = () if scan.predicate is None else columns(scan.predicate)
    return column in used or any(follows_position(scan.paths, scan.cloud, name, footers) for name in used)


# -- boundaries -----------------------------------------------------------------------------------------------


def _split_domain(
    tables: Sequence[_Table], uses: _Uses, footers: Footers, nranks: int, partitions: int
) -> list[tuple[_Table, KeyRange]]:
    """Return how the tables that are joined by their columns are split; nothing of those that gain nothing by it."""
    splits: dict[_Place, tuple[_Table, KeyRange]] = {}
    for leader in sorted(tables, key=lambda table: -table.nbytes):
        if len(leader.groups) < nranks * partitions:
            continue
        boundaries = _boundaries(leader, nranks * partitions)
        if _split(leader, boundaries, partitions, _OF_LEADER) is not None:
            found = ((table, _split(table, boundaries, partitions, _OF_FOLLOWER)) for table in tables)
            splits = {
                (table.scan, table.column): (table, split) for table, split in found if split is not None
            }
            break
    gaining = set(uses.alone)
    for pair in uses.joined:
        gaining.update(
            ours
            for ours, theirs in (pair, pair[::-1])
            if ours in splits
            # Where there are partitions, rows of a smaller table move to the ranges of this one.
            and (
                theirs in splits or (partitions > 1 and _nbytes(theirs[0], footers) <= splits[ours][0].nbytes)
            )
        )
    return [split for place, split in splits.items() if place in gaining]


def _nbytes(scan: Scan, footers: Footers) -> float:
    """Return the uncompressed bytes of a scan's files; infinity if that is unknown."""
    if scan.kind != "parquet":
        return math.inf
    try:
        return sum(group.nbytes for group in row_groups(footers, scan.paths, scan.cloud))
    except FooterError:
        return math.inf


def _boundaries(table: _Table, parts: int) -> tuple[Any, ...]:
    """Return values that split a table into about equal parts: each the first one of a row group."""
    groups, bounds = table.groups, table.bounds
    before = list(itertools.accumulate((group.nbytes for group in groups), initial=0))
    share = before[-1] / parts

    def distance(place: int, target: float) -> float:
        clean = bounds.greatest[place - 1] < bounds.least[place]
        return abs(before[place] - target) + (0 if clean else _MOVED * share)

    places = (
        min(range(1, len(groups)), key=lambda place: distance(place, share * part))
        for part in range(1, parts)
    )
    return tuple(bounds.least[place] for place in places)


def _split(table: _Table, boundaries: tuple[Any, ...], partitions: int, limits: _Limits) -> KeyRange | None:
    """Return how a table is split at these values; ``None`` if ranks had too much to read, some of them or all."""
    groups, bounds = table.groups, table.bounds
    parts = len(boundaries) + 1
    starts = list(itertools.accumulate((sum(g.rows for g in file) for file in table.files), initial=0))
    first_rows = list(itertools.accumulate((group.rows for group in groups), initial=0))
    shares, filtered, sizes = [], [], []
    for part in range(parts):
        low = boundaries[part - 1] if part > 0 else None
        high = boundaries[part] if part < len(boundaries) else None
        # Bounds ascend, so the row groups of a range are neighbours.
        first = 0 if low is None else bisect.bisect_left(bounds.greatest, low)
        last = len(groups) if high is None else bisect.bisect_left(bounds.least, high)
        if first >= last or (low is not None and high is not None and low >= high):
            shares.append(share_of_rows(starts, 0, 0))
            filtered.append(False)
            sizes.append(0)
            continue
        shares.append(share_of_rows(starts, first_rows[first], first_rows[last]))
        filtered.append(
            (low is not None and bounds.least[first] < low)
            or (high is not None and bounds.greatest[last - 1] >= high)
        )
        sizes.append(sum(group.nbytes for group in groups[first:last]))
    of_ranks = [sum(sizes[first : first + partitions]) for first in range(0, parts, partitions)]
    if (
        max(of_ranks) * len(of_ranks) > limits.uneven_ranks * sum(sizes)
        or (partitions > 1 and max(sizes) * parts > limits.uneven_partitions * table.nbytes)
        or sum(sizes) > limits.read_again * table.nbytes
    ):
        return None
    if table.ordered and any(filtered):
        return None  # inside of a row group, rows may be in another order
    return KeyRange(table.column, partitions, boundaries, tuple(shares), tuple(filtered))

"""Files that are sorted by a key: ranks read ranges of its values, so that equal keys are collocated from the start.

Tables of a database, of events, of orders are mostly written in the order of a key, which the bounds of their row
groups show. Then the boundaries between the ranks' shares may lie between values as well as between rows, and what is
grouped or joined by the key needs no exchange. Tables that are joined by such keys are split at the same values.

What is decided here follows from the plan and from footers alone, so that all ranks decide the same.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl

from cudf_polars.lower.column_bounds import ColumnBounds, ascending_bounds, follows_position
from cudf_polars.lower.footers import FooterError, Footers, RowGroup
from cudf_polars.lower.order import order_demands
from cudf_polars.lower.shape import renames
from cudf_polars.lower.shares import RowShare, share_of_rows
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

_UNEVEN = 1.25
"""How many times its even share of the bytes a rank may read of the table whose values are the boundaries."""
_FOLLOWER_UNEVEN = 1.5
"""The same of the other tables that are split at these values."""
_READ_TWICE = 1.25
"""How many times the bytes of a table the ranks may read together: they share row groups with boundaries inside."""
_MOVED = 0.1
"""A boundary is moved by this part of a rank's share, if then no row group has rows on both sides of it."""

_Place: TypeAlias = tuple[Scan, str]
"""A column of a scan."""


@dataclass(frozen=True)
class KeyRange:
    """How a scan is split over the ranks by the values of a column.

    Attributes
    ----------
    column
        Its name.
    boundaries
        The first value of each rank's range but the first rank's.
    shares
        By rank, the rows of the row groups that hold its range.
    filtered
        By rank, whether these hold rows of other ranges, too.
    """

    column: str
    boundaries: tuple[Any, ...]
    shares: tuple[RowShare, ...]
    filtered: tuple[bool, ...]

    def predicate(self, rank: int, dtype: pl.DataType) -> pl.Expr | None:
        """Return which of the rows that a rank reads are in its range; ``None`` if all are."""
        if not self.filtered[rank]:
            return None
        key = pl.col(self.column)
        chosen = pl.lit(True)
        if rank > 0:
            chosen = key >= pl.lit(self.boundaries[rank - 1], dtype=dtype)
        if rank < len(self.boundaries):
            below = key < pl.lit(self.boundaries[rank], dtype=dtype)
            chosen = chosen & below if rank > 0 else below
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


def find_key_ranges(plan: Plan, footers: Footers, nranks: int) -> dict[int, KeyRange]:
    """Return, by number of the node, which scans of a plan are split by values."""
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
        for table, split in _split_domain(members, uses, nranks):
            number = plan.number(table.scan)
            assert number is not None
            found[number] = split
    return found


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


def _split_domain(tables: Sequence[_Table], uses: _Uses, nranks: int) -> list[tuple[_Table, KeyRange]]:
    """Return how the tables that are joined by their columns are split; nothing of those that gain nothing by it."""
    splits: dict[_Place, tuple[_Table, KeyRange]] = {}
    for leader in sorted(tables, key=lambda table: -table.nbytes):
        boundaries = _boundaries(leader, nranks)
        if _split(leader, boundaries, _UNEVEN) is not None:
            found = ((table, _split(table, boundaries, _FOLLOWER_UNEVEN)) for table in tables)
            splits = {
                (table.scan, table.column): (table, split) for table, split in found if split is not None
            }
            break
    met = [pair for pair in uses.joined if pair[0] in splits and pair[1] in splits]
    gaining = {*itertools.chain.from_iterable(met), *uses.alone}
    return [split for place, split in splits.items() if place in gaining]


def _boundaries(table: _Table, nranks: int) -> tuple[Any, ...]:
    """Return values that split a table into about equal parts: each the first one of a row group."""
    groups, bounds = table.groups, table.bounds
    before = list(itertools.accumulate((group.nbytes for group in groups), initial=0))
    share = before[-1] / nranks

    def distance(place: int, target: float) -> float:
        clean = bounds.greatest[place - 1] < bounds.least[place]
        return abs(before[place] - target) + (0 if clean else _MOVED * share)

    places = (
        min(range(1, len(groups)), key=lambda place: distance(place, share * rank))
        for rank in range(1, nranks)
    )
    return tuple(bounds.least[place] for place in places)


def _split(table: _Table, boundaries: tuple[Any, ...], uneven: float) -> KeyRange | None:
    """Return how a table is split at these values; ``None`` if some ranks had much more to read than others."""
    groups, bounds = table.groups, table.bounds
    nranks = len(boundaries) + 1
    starts = list(itertools.accumulate((sum(g.rows for g in file) for file in table.files), initial=0))
    first_rows = list(itertools.accumulate((group.rows for group in groups), initial=0))
    shares, filtered, sizes = [], [], []
    for rank in range(nranks):
        low = boundaries[rank - 1] if rank > 0 else None
        high = boundaries[rank] if rank < len(boundaries) else None
        # Bounds ascend, so these are neighbours.
        mine = [
            number
            for number in range(len(groups))
            if (low is None or bounds.greatest[number] >= low)
            and (high is None or bounds.least[number] < high)
            and (low is None or high is None or low < high)
        ]
        if not mine:
            shares.append(share_of_rows(starts, 0, 0))
            filtered.append(False)
            continue
        shares.append(share_of_rows(starts, first_rows[mine[0]], first_rows[mine[-1] + 1]))
        filtered.append(
            (low is not None and bounds.least[mine[0]] < low)
            or (high is not None and bounds.greatest[mine[-1]] >= high)
        )
        sizes.append(sum(groups[number].nbytes for number in mine))
    if max(sizes) * nranks > uneven * table.nbytes or sum(sizes) > _READ_TWICE * table.nbytes:
        return None
    if table.ordered and any(filtered):
        return None  # inside of a row group, rows may be in another order
    return KeyRange(table.column, boundaries, tuple(shares), tuple(filtered))

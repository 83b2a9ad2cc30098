"""Joins: in place where rows already meet, else one side to every rank or both sides by hash, by counted sizes."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import polars as pl

from cudf_polars.lower.asof import lower_asof
from cudf_polars.lower.builder import Measurement
from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.group_filters import lower_sides
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.join_estimates import (
    WITHOUT_EQUAL_KEYS,
    column_pairs,
    copied_beside,
    expected_rows,
    partitions_of,
)
from cudf_polars.lower.key_filters import can_filter, filter_by_keys, is_filtered
from cudf_polars.lower.lookups import lookup_side
from cudf_polars.lower.partitioning import ARBITRARY, REPLICATED, SINGLE, Distribution, Partitioning
from cudf_polars.lower.physical import Estimate, Local, Materialize, Stream
from cudf_polars.lower.scans import BY_RANGES, read_everywhere
from cudf_polars.lower.validated_joins import check_keys, without_check_if_empty
from cudf_polars.plan.expressions import Column, Expr
from cudf_polars.plan.nodes import (
    Filter,
    HStack,
    Join,
    Node,
    Select,
    SimpleProjection,
    Slice,
    Sort,
)
from cudf_polars.plan.properties import is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["lower_join"]

_LEFT_ORDER = "__rr_left_order"
_RIGHT_ORDER = "__rr_right_order"

# The sides that may be on every rank while the other is partitioned: each row of the latter then meets all it can
# match, and no row of the copied side is in the answer by itself.
_COPIED_SIDES = {
    "inner": ("right", "left"),
    "left": ("right",),
    "right": ("left",),
    "full": (),
    "semi": ("right",),
    "anti": ("right",),
    "cross": ("right", "left"),
    "ie": ("right", "left"),
    "asof": ("right",),
}
_BUILT_AGAIN, _LITTLE_TO_BUILD = 0.25, 64 << 20
"""A join runs for each partition of a side, and each time builds its table of the copy of the other one: in all, of so
many bytes of copies for each byte of that side, or of so many bytes, before the side is rather read in one.
"""
_KEPT_TO_CHOOSE, _MUCH_KEPT = 10_000_000, 2
"""Polars buffers so many rows of each side before it chooses the build side. They may have so many times the bytes of a
side that may be copied.
"""
# The sides whose order a join can keep when the other is on every rank.
_KEPT_ORDERS = {
    "none": ("left", "right"),
    "left": ("left",),
    "left_right": ("left",),
    "right": ("right",),
    "right_left": ("right",),
}


@dataclass
class _Sides:
    """A join's inputs on their way, by side.

    Attributes
    ----------
    stays
        The side to whose ranges the other one is to move.
    """

    node: Join
    left: Stream
    right: Stream
    stays: str | None = None

    def get(self, side: str) -> Stream:
        return self.left if side == "left" else self.right

    def put(self, side: str, stream: Stream) -> None:
        if side == "left":
            self.left = stream
        else:
            self.right = stream


def lower_join(ctx: Context, node: Node) -> Stream:
    """Join two streams."""
    assert isinstance(node, Join)
    demanded = ctx.ordered(node) or node.slice is not None
    order = node.maintain_order if demanded else "none"
    plain = replace(node, slice=None, maintain_order=order)
    result = _join(ctx, plain, demanded=demanded)
    if isinstance(result, Local) and not ctx.properties.is_left_out(node):
        result.lookup_side = lookup_side(ctx, result)
    return ctx.builder.slice(result, node.slice)


def _join(ctx: Context, node: Join, *, demanded: bool) -> Stream:
    """Join two streams; ``demanded`` says whether an order of the result's rows is."""
    copied = [side for side in _COPIED_SIDES[node.how] if _other(side) in _KEPT_ORDERS[node.maintain_order]]
    if node.how == "asof":
        copied = ["right"]
    if node.validate != "m:m":
        # Doubles of a key are only seen where all rows with that key are.
        copied = []
    everywhere = _read_one_side_everywhere(ctx, node, copied)
    if everywhere is not None:
        return everywhere
    node, left, right = without_check_if_empty(ctx, node, *lower_sides(ctx, node, column_pairs(node)))
    sides = _Sides(node, left, right)
    placed = _in_place(ctx, sides, copied)
    if placed is not None:
        return placed
    # A side that is on every rank but may not stay so counts as rank 0's.
    sides.left, sides.right = ctx.builder.disjoint(sides.left), ctx.builder.disjoint(sides.right)
    placed = _in_place(ctx, sides, copied)
    if placed is not None:
        return placed
    if node.how == "asof" and ctx.builder.settings.partitions > 1:
        joined = _broadcast_if_small(ctx, sides, copied)
        joined = joined or lower_asof(ctx, node, sides.left, sides.right, ordered=demanded)
        if joined is not None:
            return joined
    if node.how in WITHOUT_EQUAL_KEYS:
        return _broadcast_smaller(ctx, sides, copied)
    if not all(is_elementwise(key.expr) for key in (*node.left_on, *node.right_on)):
        return ctx.on_one_rank(node, [sides.left, sides.right], Gathered.NOT_ROWWISE_KEYS)
    sides.stays = _side_that_stays(ctx, sides)
    small, large = _by_size(ctx, sides)
    if small not in copied:
        # Filtered, the other side may be small enough to be copied.
        _filter_larger(ctx, sides, small, large)
    measured = _broadcast_if_small(ctx, sides, copied)
    if measured is not None:
        return measured
    if small in copied and _filter_larger(ctx, sides, small, large):
        # What is left of the larger side may be less than the smaller one.
        measured = _broadcast_if_small(ctx, sides, [side for side in copied if side == large])
        if measured is not None:
            return measured
    return _shuffled(ctx, sides)


def _by_size(ctx: Context, sides: _Sides) -> list[str]:
    """Return the names of the sides, the one first that is likely to have fewer rows."""
    return sorted(
        ("left", "right"),
        key=lambda side: (sides.get(side).estimate.rows, not is_filtered(ctx, sides.node, side)),
    )


def _other(side: str) -> str:
    return "right" if side == "left" else "left"


def _read_one_side_everywhere(ctx: Context, node: Join, copied: Sequence[str]) -> Stream | None:
    """Join with a side that is a small table: every rank reads its files, and no row moves."""
    for side in copied:
        small = node.left if side == "left" else node.right
        large = node.right if side == "left" else node.left
        stream = read_everywhere(ctx, small)
        if stream is None:
            continue
        # Where both are small tables, so is the result: every rank has all of it, and later joins need no exchange.
        other = read_everywhere(ctx, large) or ctx.lower(large)
        left, right = (stream, other) if side == "left" else (other, stream)
        return _apply(ctx, node, left, right, _partitioning_of(node, other, _other(side)))
    return None


def _in_place(ctx: Context, sides: _Sides, copied: Sequence[str]) -> Stream | None:
    """Join without moving rows, if they already meet."""
    node, left, right = sides.node, sides.left, sides.right
    kinds = left.partitioning.distribution, right.partitioning.distribution
    if kinds == (Distribution.REPLICATED, Distribution.REPLICATED):
        return _apply(ctx, node, left, right, REPLICATED)
    if kinds == (Distribution.SINGLE, Distribution.SINGLE):
        return _apply(ctx, node, left, right, SINGLE)
    for side in copied:
        if sides.get(side).partitioning.distribution is Distribution.REPLICATED:
            other = sides.get(_other(side))
            return _apply(ctx, node, left, right, _partitioning_of(node, other, _other(side)))
    if (
        node.maintain_order == "none"
        and node.how != "asof"
        and _meet(node, left.partitioning, right.partitioning)
    ):
        return _apply(ctx, node, left, right, _placement_of_join(node, left.partitioning))
    return None


def _meet(node: Join, left: Partitioning, right: Partitioning) -> bool:
    """Whether rows of both sides with equal keys are on one rank."""
    if not left.is_placed_as(right):
        return False
    pairs = column_pairs(node)
    return all(
        any(a in left_key and b in right_key for a, b in pairs)
        for left_key, right_key in zip(left.keys, right.keys, strict=True)
    )


def _right_name(node: Join, name: str) -> str:
    return name + node.suffix if name in node.left.schema else name


def _partitioning_of(node: Join, stream: Stream, side: str) -> Partitioning:
    """Return the join's partitioning when ``stream``, its ``side``, stayed where it was."""
    partitioning = stream.partitioning
    if not partitioning.keys:
        return partitioning
    if side == "left":
        keys = [frozenset(name for name in key if name in node.schema) for key in partitioning.keys]
        if node.how == "right":
            return ARBITRARY
    elif node.how == "right":
        # The preserved side keeps its keys' names.
        keys = [
            frozenset(n for n in key if n in node.schema and n not in node.left.schema)
            for key in partitioning.keys
        ]
    else:
        mapped = {b: a for a, b in column_pairs(node)} if node.coalesce else {}
        keys = [
            frozenset(
                n for n in (mapped.get(name, _right_name(node, name)) for name in key) if n in node.schema
            )
            for key in partitioning.keys
        ]
    return partitioning.with_keys(keys)


def _placement_of_join(node: Join, left: Partitioning) -> Partitioning:
    """Return the join's partitioning when both sides were placed by the values of their keys.

    ``left`` is the partitioning of the left side.
    """
    if node.how == "right" or (node.how == "full" and not node.coalesce):
        # Rows of one side only have null keys, wherever they are.
        return ARBITRARY
    own = [a for a, _ in column_pairs(node)]
    if node.how == "full" and len(set(own)) < len(own):
        # A row of the right side only has one of its keys in that column; it is where both have sent it.
        return ARBITRARY
    keys = []
    for key in left.keys:
        names = {name for name in key if name in node.schema}
        if node.how == "full":
            names &= set(own)  # in other columns such a row has nulls
        if node.how == "inner" and not node.coalesce:
            names |= {_right_name(node, b) for a, b in column_pairs(node) if a in key}
        keys.append(frozenset(name for name in names if name in node.schema))
    return left.with_keys(keys)


def _apply(ctx: Context, node: Join, left: Stream, right: Stream, partitioning: Partitioning) -> Stream:
    rows = expected_rows(ctx, node, left.estimate, right.estimate)
    left = _in_order(ctx, node, left)
    left, right = _without_null_keys(ctx, node, left, "left"), _without_null_keys(ctx, node, right, "right")
    left, right = check_keys(ctx, node, left, right)
    node = _with_build_side(ctx, node, left, right)
    return ctx.apply(
        node,
        [left, right],
        partitioning=partitioning,
        ordered=node.maintain_order != "none" or node.how == "asof",
        estimate=Estimate(rows, rows * row_width(node.schema)),
    )


def _with_build_side(ctx: Context, node: Join, left: Stream, right: Stream) -> Join:
    """Make a copied side the build side, where rows of the other one would otherwise take much of the memory.

    Polars buffers rows of both sides until it knows which one has fewer. Where the plan names the build side, Polars
    does not filter the scan of the probe side by its keys. So the plan names it only where it has to.
    """
    settings = ctx.builder.settings
    sides = {"left": left, "right": right}
    copied = [
        side for side, stream in sides.items() if stream.partitioning.distribution is Distribution.REPLICATED
    ]
    if settings.partitions == 1 or node.how in WITHOUT_EQUAL_KEYS or len(copied) != 1:
        return node
    copy, other = sides[copied[0]], sides[_other(copied[0])]
    # Polars has chosen once a side has ended, and a copy is read at least as fast as what is beside it.
    kept = min(_KEPT_TO_CHOOSE, copy.estimate.rows)
    rows = min(other.estimate.rows / settings.nranks, kept) / partitions_of(ctx, other)
    if rows * row_width(other.schema) <= _MUCH_KEPT * settings.broadcast_limit:
        return node
    return replace(node, build_side=copied[0])


def _in_order(ctx: Context, node: Join, left: Stream) -> Stream:
    """Return the left side of an as-of join such that its order is checked where Polars does not see it.

    Polars checks the part of each rank, and the right side, which every rank has as a whole.
    """
    asof = node.asof
    if asof is None or not asof.check_sortedness or asof.left_by or ctx.builder.is_whole(left):
        return left
    key = node.left_on[0]
    if _is_sorted_by(node.left, key.expr):
        return left
    if ctx.properties.is_row_pipeline(node.left):
        # Reading the key again costs less than holding all columns.
        main, side = left, ctx.lower(node.left)
    else:
        main = side = ctx.builder.materialize(left, "read for the ends of its parts", shared=True)
    return ctx.builder.checked_order(main, side, to_expr(key.expr).alias(key.name), key.name, "asof_join")


def _is_sorted_by(node: Node, key: Expr) -> bool:
    """Whether the query itself sorts its rows by ``key``."""
    if not isinstance(key, Column):
        return False
    while isinstance(node, Filter | SimpleProjection | Slice):
        node = node.child
    if not isinstance(node, Sort):
        return False
    first = node.by[0].expr
    return isinstance(first, Column) and first.name == key.name and not node.descending[0]


def _without_null_keys(ctx: Context, node: Join, stream: Stream, side: str) -> Stream:
    """Drop the rows of a copied side that match nothing.

    They are few; but Polars passes the keys of a build side on to the scan of the other side, which then skips
    most of its rows, only if it sees a filter on the build side. So this says what the plan no longer shows:
    that the side was filtered before it was copied.
    """
    if (
        stream.partitioning.distribution is not Distribution.REPLICATED
        or side not in _COPIED_SIDES[node.how]
        or node.how not in ("inner", "semi")
        or node.nulls_equal
        or not ctx.properties.is_filtered(node.left if side == "left" else node.right)
    ):
        return stream
    names = [
        key.expr.name for key in (node.left_on if side == "left" else node.right_on) if _is_simple(key.expr)
    ]
    if not names:
        return stream
    # Polars takes an is_not_null() here for one of its own and makes nothing of it. A null is not even >= itself.
    present = pl.col(names[0]) >= pl.col(names[0])
    return ctx.builder.local(
        "DROP NULL KEYS", [stream], lambda frames, _: frames[0].filter(present), schema=stream.schema
    )


def _is_simple(key: Expr) -> TypeGuard[Column]:
    """Whether ``key`` is a column of a type whose values are ordered, so that each equals itself."""
    dtype = key.dtype
    return (
        isinstance(key, Column)
        and dtype is not None
        and (dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String)
    )


def _broadcast_smaller(ctx: Context, sides: _Sides, copied: Sequence[str]) -> Stream:
    """Join without equal keys: one side must be everywhere."""
    node = sides.node
    if not copied:
        return ctx.on_one_rank(node, [sides.left, sides.right], Gathered.NO_SIDE_COPIED)
    side = min(copied, key=lambda s: sides.get(s).estimate.nbytes)
    if len(copied) == 2:
        limit = ctx.builder.settings.broadcast_limit
        sizes = {}
        for s in sorted(copied, key=lambda s: sides.get(s).estimate.nbytes):
            materialized = ctx.builder.materialize(sides.get(s), "to find the smaller side")
            sides.put(s, materialized)
            sizes[s] = ctx.builder.measure(materialized, limit)
            if sizes[s].complete and sizes[s].nbytes <= limit:
                side = s
                break
        else:
            side = min(sizes, key=lambda s: sizes[s].nbytes)
    sides.put(side, ctx.builder.broadcast(sides.get(side)))
    return _apply(
        ctx, node, sides.left, sides.right, _partitioning_of(node, sides.get(_other(side)), _other(side))
    )


def _broadcast_if_small(ctx: Context, sides: _Sides, copied: Sequence[str]) -> Stream | None:
    """Run the side that seems smaller; copy it to every rank if it is small, which is worth more than a shuffle."""
    node, settings = sides.node, ctx.builder.settings
    if not copied:
        return None
    side = min(copied, key=lambda s: sides.get(s).estimate.nbytes)
    other = sides.get(_other(side))
    # When the other side need not move, sending this one by hash moves each row once instead of to all.
    hashed_already = _is_hashed_by_keys(node, other.partitioning, _other(side))
    limit = 0 if hashed_already else settings.broadcast_limit
    if settings.partitions > 1:
        limit = max(0, limit - copied_beside(other))
    if sides.get(side).estimate.nbytes > 16 * limit:
        return None
    materialized = _materialized(ctx, sides, side)
    size = _measured(ctx, materialized, limit)
    worth = size.nbytes * settings.nranks <= max(size.nbytes + other.estimate.nbytes, settings.small_limit)
    if not (size.complete and size.nbytes <= limit and worth):
        return None
    partitions = partitions_of(ctx, other)
    built = size.nbytes * partitions
    if partitions > 1 and built > max(_BUILT_AGAIN * other.estimate.nbytes, _LITTLE_TO_BUILD):
        if sides.stays == _other(side):
            return None
        if not _read_in_one(other):
            other = ctx.builder.materialize(other, "for the other side to be built once")
            other.partitioning = ARBITRARY
            sides.put(_other(side), other)
    sides.put(side, ctx.builder.broadcast(materialized))
    return _apply(ctx, node, sides.left, sides.right, _partitioning_of(node, other, _other(side)))


def _measured(ctx: Context, rows: Materialize, limit: int) -> Measurement:
    """Return what there is of ``rows``, which are read up to a limit; if that is all, they are no more estimated."""
    size = ctx.builder.measure(rows, limit)
    if size.complete:
        rows.estimate = Estimate(float(size.expected_rows), float(size.nbytes), counted=True)
    return size


def _read_in_one(stream: Stream) -> bool:
    """Have the file at the start of row-wise steps not be read by ranges; return whether there is nothing else."""
    steps: list[Local] = []
    while isinstance(stream, Local):
        steps.append(stream)
        if not stream.inputs:
            stream.title = stream.title.partition(BY_RANGES)[0]
            for step in steps:
                step.build_partition, step.partitions, step.partitioning = None, 1, ARBITRARY
            return True
        rows = list(stream.inputs)
        if isinstance(stream.node, Join):
            rows = [s for s in rows if s.partitioning.distribution is not Distribution.REPLICATED]
        if len(rows) != 1 or not (isinstance(stream.node, Join) or _is_rowwise(stream.node)):
            return False
        (stream,) = rows
    return False


def _is_rowwise(node: Node | None) -> bool:
    if isinstance(node, SimpleProjection):
        return True
    return isinstance(node, Select | HStack | Filter) and all(map(is_elementwise, node.expressions))


def _filter_larger(ctx: Context, sides: _Sides, small: str, large: str) -> bool:
    """Leave out rows of the larger side by the keys of the other one, before it moves; return whether that pays."""
    node, builder = sides.node, ctx.builder
    nodes = {"left": node.left, "right": node.right}
    if (
        sides.stays == large
        or isinstance(sides.get(large), Materialize)  # it has been run
        or _is_hashed_by_keys(node, sides.get(large).partitioning, large)
        or not can_filter(ctx, node, large, sides.get(large), nodes[large], sides.get(small))
    ):
        return False
    pairs = _pairs_from(node, large)
    if not pairs:
        return False
    keys = _materialized(ctx, sides, small, "its keys filter the other side of a join")
    if not _measured(ctx, keys, builder.settings.filter_limit).complete:
        return False
    filtered = filter_by_keys(
        ctx, keys, nodes[small], sides.get(large), nodes[large], pairs, nulls_equal=node.nulls_equal
    )
    pays = filtered is not sides.get(large)
    sides.put(large, filtered)
    return pays


def _is_hashed_by_keys(node: Join, partitioning: Partitioning, side: str) -> bool:
    """Whether ``side`` was sent by the hash of some of the join's keys."""
    return partitioning.is_hash() and _has_keys_of(node, partitioning, side)


def _has_keys_of(node: Join, partitioning: Partitioning, side: str) -> bool:
    """Whether all columns by which ``side`` is distributed are keys of the join."""
    names = {ours for ours, _ in _pairs_from(node, side)}
    return all(key & names for key in partitioning.keys)


def _side_that_stays(ctx: Context, sides: _Sides) -> str | None:
    """Return the side that is read in ranges of a key of the join, if the other one is to move to these.

    The larger one stays: the ranges are about equal parts of its rows, but need not be of the other one's. Where rows
    are not worked on in partitions, it costs less to filter it by the other one's keys and to move what is left.
    """
    node, settings = sides.node, ctx.builder.settings
    larger = max(("left", "right"), key=lambda side: sides.get(side).estimate.nbytes)
    partitioning, moves = sides.get(larger).partitioning, _other(larger)
    if (
        settings.partitions == 1
        or node.maintain_order != "none"
        or partitioning.boundaries is None
        or not _has_keys_of(node, partitioning, larger)
    ):
        return None
    (names,), (key,) = partitioning.keys, _corresponding(node, partitioning, larger)
    if any(sides.get(larger).schema[name] != sides.get(moves).schema[key] for name in names):
        return None
    return larger if settings.nranks <= 2 or _is_spread(ctx, sides, moves, key, partitioning) else None


def _is_spread(ctx: Context, sides: _Sides, side: str, key: str, ranges: Partitioning) -> bool:
    """Whether the keys of ``side``, of which some rows are read, lie in the ranges of half of the ranks.

    Those of the latest orders, say, would all be one rank's.
    """
    settings, boundaries = ctx.builder.settings, ranges.boundaries
    assert boundaries is not None
    rows = _materialized(ctx, sides, side)
    _measured(ctx, rows, settings.broadcast_limit)
    (keys,) = ctx.builder.find_keys(rows, {key: 0})
    if keys.bounds is None:
        return True
    partitions = (len(boundaries) + 1) // settings.nranks
    first, last = (bisect.bisect_right(boundaries, value) // partitions for value in keys.bounds)
    return 2 * (last - first + 1) >= settings.nranks


def _materialized(
    ctx: Context, sides: _Sides, side: str, reason: str = "to choose how to join"
) -> Materialize:
    """Materialize a side, unless it is materialized for this join already."""
    rows = sides.get(side)
    if not isinstance(rows, Materialize) or rows.shared:
        rows = ctx.builder.materialize(rows, reason)
        sides.put(side, rows)
    return rows


def _shuffled(ctx: Context, sides: _Sides) -> Stream:
    """Send both sides by the hash of the keys; a side that already was only needs the other to follow."""
    node, builder = sides.node, ctx.builder
    if sides.stays is None:
        sides.stays = _side_that_stays(ctx, sides)  # by what has been counted since
    if sides.stays is not None:
        partitioning, moves = sides.get(sides.stays).partitioning, _other(sides.stays)
        assert partitioning.boundaries is not None
        (key,) = _corresponding(node, partitioning, sides.stays)
        sides.put(moves, builder.shuffle_to_ranges(sides.get(moves), key, partitioning.boundaries))
        return _apply(ctx, node, sides.left, sides.right, _placement_of_join(node, sides.left.partitioning))
    columns: dict[str, list[str]] = {}
    original = list(node.schema)
    ordered = node.maintain_order
    if ordered in ("left", "left_right", "right_left"):
        sides.left = builder.attach_order(sides.left, _LEFT_ORDER)
    if ordered in ("right", "left_right", "right_left"):
        sides.right = builder.attach_order(sides.right, _RIGHT_ORDER)
    for side, keys in (("left", node.left_on), ("right", node.right_on)):
        stream, names = key_columns(ctx, sides.get(side), [key.expr for key in keys], f"__rr_{side}_key")
        sides.put(side, stream)
        columns[side] = names
    for side in ("left", "right"):
        if ordered == "none" and _is_hashed_by_keys(node, sides.get(side).partitioning, side):
            follow = _corresponding(node, sides.get(side).partitioning, side)
            other = _other(side)
            sides.put(other, builder.shuffle(sides.get(other), follow))
            break
    else:
        for side in ("left", "right"):
            sides.put(side, builder.shuffle(sides.get(side), columns[side]))
    partitioning = sides.left.partitioning
    for side, child in (("left", node.left), ("right", node.right)):
        extra = [name for name in sides.get(side).schema if name in (_LEFT_ORDER, _RIGHT_ORDER)]
        sides.put(side, builder.select(sides.get(side), [*child.schema, *extra]))
    if ordered == "none":
        return _apply(ctx, node, sides.left, sides.right, _placement_of_join(node, partitioning))
    positions = {
        "left": [_LEFT_ORDER],
        "right": [_RIGHT_ORDER],
        "left_right": [_LEFT_ORDER, _RIGHT_ORDER],
        "right_left": [_RIGHT_ORDER, _LEFT_ORDER],
    }[ordered]
    present = [name for name in positions if node.how not in ("semi", "anti") or name == _LEFT_ORDER]
    numbered = replace(
        node, schema={**node.schema, **{name: pl.UInt64() for name in present}}, maintain_order="none"
    )
    joined = _apply(ctx, numbered, sides.left, sides.right, ARBITRARY)
    return builder.select(builder.restore_order(joined, present), original)


def _corresponding(node: Join, partitioning: Partitioning, side: str) -> list[str]:
    """Return the other side's columns that match the keys by which ``side`` is distributed, in the same order."""
    pairs = _pairs_from(node, side)
    return [next(theirs for ours, theirs in pairs if ours in key) for key in partitioning.keys]


def _pairs_from(node: Join, side: str) -> list[tuple[str, str]]:
    """Return the pairs of key columns, that of ``side`` first."""
    pairs = column_pairs(node)
    return pairs if side == "left" else [(right, left) for left, right in pairs]

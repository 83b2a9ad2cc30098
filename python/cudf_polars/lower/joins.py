"""Joins: in place where rows already meet, else one side to every rank or both sides by hash, by counted sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudf_polars.lower.asof import lower_asof
from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import LookupKey
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.group_filters import lower_sides
from cudf_polars.lower.join_estimates import (
    WITHOUT_EQUAL_KEYS,
    column_pairs,
    copied_beside,
    partitions_of,
)
from cudf_polars.lower.join_sides import (
    Sides,
    is_hashed_by_keys,
    materialized,
    measured,
    other_side,
    pairs_from,
)
from cudf_polars.lower.key_filters import can_filter, filter_by_keys, is_filtered
from cudf_polars.lower.local_joins import COPIED_SIDES, apply_join, partitioning_of, placement_of_join
from cudf_polars.lower.lookups import lookup_key, lookup_side
from cudf_polars.lower.partitioning import ARBITRARY, REPLICATED, SINGLE, Distribution, Partitioning
from cudf_polars.lower.physical import Local, Materialize, Stream
from cudf_polars.lower.scans import BY_RANGES, read_everywhere
from cudf_polars.lower.shuffled_joins import shuffled, side_that_stays
from cudf_polars.lower.validated_joins import without_check_if_empty
from cudf_polars.plan.nodes import Filter, HStack, Join, Node, Select, SimpleProjection
from cudf_polars.plan.properties import is_elementwise

__all__ = ["lower_join"]

_OVERESTIMATED, _OVERESTIMATED_KEYS = 16, 2
"""A side is measured if it is estimated at up to so many times the limit: of copies, and of copies by lookup."""
_BUILT_AGAIN, _LITTLE_TO_BUILD = 0.25, 64 << 20
"""A join runs for each partition of a side, and each time builds its table of the copy of the other one: in all, of so
many bytes of copies for each byte of that side, or of so many bytes, before the side is rather read in one.
"""
# The sides whose order a join can keep when the other is on every rank.
_KEPT_ORDERS = {
    "none": ("left", "right"),
    "left": ("left",),
    "left_right": ("left",),
    "right": ("right",),
    "right_left": ("right",),
}


def lower_join(ctx: Context, node: Node) -> Stream:
    """Join two streams."""
    assert isinstance(node, Join)
    demanded = ctx.ordered(node) or node.slice is not None
    order = node.maintain_order if demanded else "none"
    plain = replace(node, slice=None, maintain_order=order)
    ctx.stands_for(plain, node)
    result = _join(ctx, plain, demanded=demanded)
    if isinstance(result, Local) and not ctx.properties.is_left_out(node):
        result.lookup_side = lookup_side(ctx, result)
    return ctx.builder.slice(result, node.slice)


def _join(ctx: Context, node: Join, *, demanded: bool) -> Stream:
    """Join two streams; ``demanded`` says whether an order of the result's rows is."""
    copied = [
        side for side in COPIED_SIDES[node.how] if other_side(side) in _KEPT_ORDERS[node.maintain_order]
    ]
    if node.how == "asof":
        copied = ["right"]
    if node.validate != "m:m":
        # Doubles of a key are only seen where all rows with that key are.
        copied = []
    everywhere = _read_one_side_everywhere(ctx, node, copied)
    if everywhere is not None:
        return everywhere
    node, left, right = without_check_if_empty(ctx, node, *lower_sides(ctx, node, column_pairs(node)))
    sides = Sides(node, left, right)
    placed = _in_place(ctx, sides, copied)
    if placed is not None:
        return placed
    # A side that is on every rank but may not stay so counts as rank 0's.
    sides.left, sides.right = ctx.builder.disjoint(sides.left), ctx.builder.disjoint(sides.right)
    placed = _in_place(ctx, sides, copied)
    if placed is not None:
        return placed
    shared = _is_to_be_shared(ctx, sides)
    if node.how == "asof" and ctx.builder.settings.partitions > 1:
        joined = _broadcast_if_small(ctx, sides, copied)
        joined = joined or lower_asof(ctx, node, sides.left, sides.right, ordered=demanded)
        if joined is not None:
            return joined
    if node.how in WITHOUT_EQUAL_KEYS:
        if shared and node.maintain_order == "none" and copied:
            _spread_one_side(ctx, sides, copied)
        return _broadcast_smaller(ctx, sides, copied)
    if not all(is_elementwise(key.expr) for key in (*node.left_on, *node.right_on)):
        return ctx.on_one_rank(node, [sides.left, sides.right], Gathered.NOT_ROWWISE_KEYS)
    if shared:
        return shuffled(ctx, sides)
    sides.stays = side_that_stays(ctx, sides)
    small, large = _by_size(ctx, sides)
    if small not in copied:
        # Filtered, the other side may be small enough to be copied.
        _filter_larger(ctx, sides, small, large)
    joined = _broadcast_if_small(ctx, sides, copied)
    if joined is not None:
        return joined
    if small in copied and _filter_larger(ctx, sides, small, large):
        # What is left of the larger side may be less than the smaller one.
        joined = _broadcast_if_small(ctx, sides, [side for side in copied if side == large])
        if joined is not None:
            return joined
    return shuffled(ctx, sides)


def _by_size(ctx: Context, sides: Sides) -> list[str]:
    """Return the names of the sides, the one first that is likely to have fewer rows."""
    return sorted(
        ("left", "right"),
        key=lambda side: (sides.get(side).estimate.rows, not is_filtered(ctx, sides.node, side)),
    )


def _read_one_side_everywhere(ctx: Context, node: Join, copied: Sequence[str]) -> Stream | None:
    """Join with a side that is a small table: every rank reads its files, and no row moves."""
    for side in copied:
        small = node.left if side == "left" else node.right
        large = node.right if side == "left" else node.left
        stream = read_everywhere(ctx, small)
        if stream is None:
            continue
        # Where both are small tables, so mostly is the result: every rank has all of it, and later joins need no
        # exchange.
        other = None if node in ctx.joined_rows else read_everywhere(ctx, large)
        other = other or ctx.lower(large)
        left, right = (stream, other) if side == "left" else (other, stream)
        return apply_join(ctx, node, left, right, partitioning_of(node, other, other_side(side)))
    return None


def _in_place(ctx: Context, sides: Sides, copied: Sequence[str]) -> Stream | None:
    """Join without moving rows, if they already meet."""
    node, left, right = sides.node, sides.left, sides.right
    if _is_to_be_shared(ctx, sides):
        return None
    kinds = left.partitioning.distribution, right.partitioning.distribution
    if kinds == (Distribution.REPLICATED, Distribution.REPLICATED):
        return apply_join(ctx, node, left, right, REPLICATED)
    if kinds == (Distribution.SINGLE, Distribution.SINGLE):
        return apply_join(ctx, node, left, right, SINGLE)
    for side in copied:
        if sides.get(side).partitioning.distribution is Distribution.REPLICATED:
            other = sides.get(other_side(side))
            return apply_join(ctx, node, left, right, partitioning_of(node, other, other_side(side)))
    if (
        node.maintain_order == "none"
        and node.how != "asof"
        and _meet(node, left.partitioning, right.partitioning)
    ):
        return apply_join(ctx, node, left, right, placement_of_join(node, left.partitioning))
    return None


def _is_to_be_shared(ctx: Context, sides: Sides) -> bool:
    """Whether a join grows whose sides are whole: the ranks, and partitions of theirs, rather have parts of it each."""
    is_whole = ctx.builder.is_whole
    return sides.node in ctx.joined_rows and is_whole(sides.left) and is_whole(sides.right)


def _spread_one_side(ctx: Context, sides: Sides, copied: Sequence[str]) -> None:
    """Send the rows of one side to all ranks, some to each: that with more rows if the other one may be copied."""
    side = max(map(other_side, copied), key=lambda side: sides.get(side).estimate.rows)
    rows = sides.get(side)
    sides.put(side, ctx.builder.shuffle(rows, list(rows.schema)))


def _meet(node: Join, left: Partitioning, right: Partitioning) -> bool:
    """Whether rows of both sides with equal keys are on one rank."""
    if not left.is_placed_as(right):
        return False
    pairs = column_pairs(node)
    return all(
        any(a in left_key and b in right_key for a, b in pairs)
        for left_key, right_key in zip(left.keys, right.keys, strict=True)
    )


def _broadcast_smaller(ctx: Context, sides: Sides, copied: Sequence[str]) -> Stream:
    """Join without equal keys: one side must be everywhere."""
    node = sides.node
    if not copied:
        return ctx.on_one_rank(node, [sides.left, sides.right], Gathered.NO_SIDE_COPIED)
    side = min(copied, key=lambda s: sides.get(s).estimate.nbytes)
    if len(copied) == 2:
        limit = ctx.builder.settings.broadcast_limit
        sizes = {}
        for s in sorted(copied, key=lambda s: sides.get(s).estimate.nbytes):
            rows = ctx.builder.materialize(sides.get(s), "to find the smaller side")
            sides.put(s, rows)
            sizes[s] = ctx.builder.findings.measure(rows, limit)
            if sizes[s].complete and sizes[s].nbytes <= limit:
                side = s
                break
        else:
            side = min(sizes, key=lambda s: sizes[s].nbytes)
    sides.put(side, ctx.builder.broadcast(sides.get(side)))
    return apply_join(
        ctx,
        node,
        sides.left,
        sides.right,
        partitioning_of(node, sides.get(other_side(side)), other_side(side)),
    )


def _broadcast_if_small(ctx: Context, sides: Sides, copied: Sequence[str]) -> Stream | None:
    """Run the side that seems smaller; copy it to every rank if it is small, which is worth more than a shuffle."""
    node, settings = sides.node, ctx.builder.settings
    if not copied:
        return None
    side = min(copied, key=lambda s: sides.get(s).estimate.nbytes)
    other = sides.get(other_side(side))
    # When the other side need not move, sending this one by hash moves each row once instead of to all.
    hashed_already = is_hashed_by_keys(node, other.partitioning, other_side(side))
    limit = 0 if hashed_already else settings.broadcast_limit
    lookup_limit = 0 if hashed_already or not _key(ctx, sides, side) else settings.lookup_limit
    if settings.partitions > 1:
        beside = copied_beside(other)
        limit, lookup_limit = max(0, limit - beside), max(0, lookup_limit - beside)
    most = max(limit, lookup_limit)
    # A filter may leave much less than is estimated. But up to ``most`` bytes of the side are read before it is sent.
    if sides.get(side).estimate.nbytes > max(_OVERESTIMATED * limit, _OVERESTIMATED_KEYS * lookup_limit):
        return None
    rows = materialized(ctx, sides, side)
    size = measured(ctx, rows, most)
    worth = size.nbytes * settings.nranks <= max(size.nbytes + other.estimate.nbytes, settings.small_limit)
    if not (size.complete and size.nbytes <= most and worth):
        return None
    partitions = partitions_of(ctx, other)
    built = size.nbytes * partitions
    is_much = partitions > 1 and built > max(_BUILT_AGAIN * other.estimate.nbytes, _LITTLE_TO_BUILD)
    if is_much or size.nbytes > limit:
        key = _key(ctx, sides, side)  # again: whether a lookup pays depends on the counted rows
        if key is not None and ctx.builder.findings.can_look_up(rows, key):
            is_much = False  # the table of keys is built once for all partitions
        elif size.nbytes > limit:
            return None
    if is_much:
        if sides.stays == other_side(side):
            return None
        if not _read_in_one(other):
            other = ctx.builder.materialize(other, "for the other side to be built once")
            other.partitioning = ARBITRARY
            sides.put(other_side(side), other)
    sides.put(side, ctx.builder.broadcast(rows))
    return apply_join(ctx, node, sides.left, sides.right, partitioning_of(node, other, other_side(side)))


def _key(ctx: Context, sides: Sides, side: str) -> LookupKey | None:
    """Return the key by which rows of a side may be found without a hash table, if it is copied."""
    return lookup_key(ctx, sides.node, {each: sides.get(each) for each in ("left", "right")}, side)


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


def _filter_larger(ctx: Context, sides: Sides, small: str, large: str) -> bool:
    """Leave out rows of the larger side by the keys of the other one, before it moves; return whether that pays."""
    node, builder = sides.node, ctx.builder
    nodes = {"left": node.left, "right": node.right}
    if (
        sides.stays == large
        or isinstance(sides.get(large), Materialize)  # it has been run
        or is_hashed_by_keys(node, sides.get(large).partitioning, large)
        or not can_filter(ctx, node, large, sides.get(large), nodes[large], sides.get(small))
    ):
        return False
    pairs = pairs_from(node, large)
    if not pairs:
        return False
    keys = materialized(ctx, sides, small, "its keys filter the other side of a join")
    if not measured(ctx, keys, builder.settings.filter_limit).complete:
        return False
    filtered = filter_by_keys(
        ctx, keys, nodes[small], sides.get(large), nodes[large], pairs, nulls_equal=node.nulls_equal
    )
    pays = filtered is not sides.get(large)
    sides.put(large, filtered)
    return pays

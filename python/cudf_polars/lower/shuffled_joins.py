"""Joins whose sides move: to the ranges in which one of them is read, or by the hash of the keys."""

from __future__ import annotations

import bisect
from dataclasses import replace

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import KeyLimit
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.heavy_keys import find_heavy_keys
from cudf_polars.lower.join_sides import (
    Sides,
    corresponding,
    has_keys_of,
    is_hashed_by_keys,
    materialized,
    measured,
    other_side,
)
from cudf_polars.lower.local_joins import apply_join, placement_of_join
from cudf_polars.lower.partitioning import ARBITRARY, Partitioning
from cudf_polars.lower.physical import Stream

__all__ = ["shuffled", "side_that_stays"]

_LEFT_ORDER = "__rr_left_order"
_RIGHT_ORDER = "__rr_right_order"


def shuffled(ctx: Context, sides: Sides) -> Stream:
    """Send both sides by the hash of the keys; a side that already was only needs the other to follow."""
    node, builder = sides.node, ctx.builder
    if sides.stays is None:
        sides.stays = side_that_stays(ctx, sides)  # by what has been counted since
    if sides.stays is not None:
        partitioning, moves = sides.get(sides.stays).partitioning, other_side(sides.stays)
        assert partitioning.boundaries is not None
        (key,) = corresponding(node, partitioning, sides.stays)
        sides.put(moves, builder.shuffle_to_ranges(sides.get(moves), key, partitioning.boundaries))
        return apply_join(
            ctx, node, sides.left, sides.right, placement_of_join(node, sides.left.partitioning)
        )
    is_hashed = any(is_hashed_by_keys(node, sides.get(side).partitioning, side) for side in ("left", "right"))
    heavy = (None if is_hashed else find_heavy_keys(ctx, sides)) or {}
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
        if ordered == "none" and is_hashed_by_keys(node, sides.get(side).partitioning, side):
            follow = corresponding(node, sides.get(side).partitioning, side)
            other = other_side(side)
            sides.put(other, builder.shuffle(sides.get(other), follow))
            break
    else:
        for side in ("left", "right"):
            sides.put(side, builder.shuffle(sides.get(side), columns[side], heavy.get(side)))
    partitioning = sides.left.partitioning
    for side, child in (("left", node.left), ("right", node.right)):
        extra = [name for name in sides.get(side).schema if name in (_LEFT_ORDER, _RIGHT_ORDER)]
        sides.put(side, builder.select(sides.get(side), [*child.schema, *extra]))
    if ordered == "none":
        return apply_join(ctx, node, sides.left, sides.right, placement_of_join(node, partitioning))
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
    ctx.stands_for(numbered, node)
    joined = apply_join(ctx, numbered, sides.left, sides.right, ARBITRARY)
    return builder.select(builder.restore_order(joined, present), original)


def side_that_stays(ctx: Context, sides: Sides) -> str | None:
    """Return the side that is read in ranges of a key of the join, if the other one is to move to these.

    The larger one stays: the ranges are about equal parts of its rows, but need not be of the other one's. Where rows
    are not worked on in partitions, it costs less to filter it by the other one's keys and to move what is left.
    """
    node, settings = sides.node, ctx.builder.settings
    larger = max(("left", "right"), key=lambda side: sides.get(side).estimate.nbytes)
    partitioning, moves = sides.get(larger).partitioning, other_side(larger)
    if (
        settings.partitions == 1
        or node.maintain_order != "none"
        or partitioning.boundaries is None
        or not has_keys_of(node, partitioning, larger)
    ):
        return None
    (names,), (key,) = partitioning.keys, corresponding(node, partitioning, larger)
    if any(sides.get(larger).schema[name] != sides.get(moves).schema[key] for name in names):
        return None
    return larger if settings.nranks <= 2 or _is_spread(ctx, sides, moves, key, partitioning) else None


def _is_spread(ctx: Context, sides: Sides, side: str, key: str, ranges: Partitioning) -> bool:
    """Whether the keys of ``side``, of which some rows are read, lie in the ranges of half of the ranks.

    Those of the latest orders, say, would all be one rank's.
    """
    settings, boundaries = ctx.builder.settings, ranges.boundaries
    assert boundaries is not None
    rows = materialized(ctx, sides, side)
    measured(ctx, rows, settings.broadcast_limit)
    (keys,) = ctx.builder.findings.find_keys(rows, {key: KeyLimit(0)})
    if keys.bounds is None:
        return True
    partitions = (len(boundaries) + 1) // settings.nranks
    first, last = (bisect.bisect_right(boundaries, value) // partitions for value in keys.bounds)
    return 2 * (last - first + 1) >= settings.nranks

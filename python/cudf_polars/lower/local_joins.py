"""Joins of rows that have met: what is joined on each rank, and how its rows are distributed then."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.join_estimates import (
    WITHOUT_EQUAL_KEYS,
    column_pairs,
    expected_rows,
    partitions_of,
)
from cudf_polars.lower.join_sides import other_side
from cudf_polars.lower.partitioning import ARBITRARY, Distribution, Partitioning
from cudf_polars.lower.physical import Estimate, Stream
from cudf_polars.lower.validated_joins import check_keys
from cudf_polars.plan.expressions import Column, Expr
from cudf_polars.plan.nodes import Filter, Join, Node, SimpleProjection, Slice, Sort
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["COPIED_SIDES", "apply_join", "partitioning_of", "placement_of_join"]

# The sides that may be on every rank while the other is partitioned: each row of the latter then meets all it can
# match, and no row of the copied side is in the answer by itself.
COPIED_SIDES = {
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
_KEPT_TO_CHOOSE, _MUCH_KEPT = 10_000_000, 2
"""Polars buffers so many rows of each side before it chooses the build side. They may have so many times the bytes of a
side that may be copied.
"""


def apply_join(ctx: Context, node: Join, left: Stream, right: Stream, partitioning: Partitioning) -> Stream:
    """Join the rows that each rank has of both sides; the result is distributed by ``partitioning``."""
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


def partitioning_of(node: Join, stream: Stream, side: str) -> Partitioning:
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


def placement_of_join(node: Join, left: Partitioning) -> Partitioning:
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


def _right_name(node: Join, name: str) -> str:
    return name + node.suffix if name in node.left.schema else name


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
    copy, other = sides[copied[0]], sides[other_side(copied[0])]
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
        or side not in COPIED_SIDES[node.how]
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

"""Joins in which execution may find the rows of a copied side by the value of their key itself.

Whether it can depends on the values of the keys: :mod:`cudf_polars.execute.lookup_join`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import LookupKey
from cudf_polars.lower.local_joins import COPIED_SIDES
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import Local, Stream
from cudf_polars.lower.tallies import INTEGER_KEYS
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import Join

__all__ = ["lookup_key", "lookup_side"]

_FOUND_SIDES = {how: COPIED_SIDES[how] for how in ("inner", "left", "right", "semi", "anti")}
"""The sides of which each row of the other one needs no more than the row with its key."""
_ORDERS = {"left": ("none", "right", "right_left"), "right": ("none", "left", "left_right")}
"""By the side that is found, the orders that are that of the other one, where a key has one row at most."""
_OF_FILTERED = 1 / 8
"""Where the other side is filtered, the side that is found may have so many rows for each that the other may have."""


def lookup_side(ctx: Context, joined: Local) -> str | None:
    """Return the side of a join whose rows may be found by the value of the key, if there is one."""
    node = joined.node
    if not isinstance(node, Join) or node.how not in _FOUND_SIDES:
        return None
    sides = dict(zip(("left", "right"), joined.inputs, strict=True))
    copied = [
        side for side, stream in sides.items() if stream.partitioning.distribution is Distribution.REPLICATED
    ]
    return copied[0] if len(copied) == 1 and lookup_key(ctx, node, sides, copied[0]) else None


def lookup_key(ctx: Context, node: Join, sides: Mapping[str, Stream], side: str) -> LookupKey | None:
    """Return the key by whose value rows of one side may be found once each rank has all of them, if there is one.

    Where a filter of one side leaves out rows of the other one, the join is left to Polars: it passes the keys of one
    side on to the scan of the other one, and makes its table of the side that turns out to have fewer rows.
    """
    if (
        side not in _FOUND_SIDES.get(node.how, ())
        or node.maintain_order not in _ORDERS[side]
        or node.validate != "m:m"
        or node.slice is not None
        or node.predicate is not None
        or len(node.left_on) != 1
    ):
        return None
    if any(
        list(sides[each].schema) != list(child.schema)
        for each, child in zip(sides, node.children, strict=True)
    ):
        return None
    left, right = node.left_on[0].expr, node.right_on[0].expr
    if not (isinstance(left, Column) and isinstance(right, Column)):
        return None
    dtype = sides["left"].schema[left.name]
    if dtype != sides["right"].schema[right.name] or dtype not in INTEGER_KEYS:
        return None
    if not _pays(ctx, node, sides, side):
        return None
    name = left.name if side == "left" else right.name
    return LookupKey(name, node.nulls_equal, unique=node.how not in ("semi", "anti"))


def _pays(ctx: Context, node: Join, sides: Mapping[str, Stream], side: str) -> bool:
    found, other = (node.left, node.right) if side == "left" else (node.right, node.left)
    is_filtered = ctx.properties.is_filtered
    if node.how in ("inner", "semi") and (is_filtered(found) or is_filtered(other)):
        return False
    rows = sides["right" if side == "left" else "left"].estimate.rows / ctx.builder.settings.nranks
    return sides[side].estimate.rows <= rows * (_OF_FILTERED if is_filtered(other) else 1)

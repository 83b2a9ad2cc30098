"""Filters from facts below groups: the keys of a join's side leave out rows of the other side before it groups them.

A group of the other side that has no partner is not in the answer, and where the join's key is one of the groups' keys,
neither are the rows that it is made of. Polars filters groups at most after they were made.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudf_polars.lower.context import Context
from cudf_polars.lower.key_filters import can_filter, filter_by_keys
from cudf_polars.lower.node_properties import is_row_step
from cudf_polars.lower.origins import renamed
from cudf_polars.lower.physical import Stream
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import Distinct, Filter, GroupBy, HStack, Join, Node, Select, SimpleProjection

__all__ = ["lower_sides"]


@dataclass(frozen=True)
class _Grouped:
    """A join's side that groups rows.

    Attributes
    ----------
    groups
        What makes groups.
    names
        Pairs of a column of the rows under ``groups`` and the other side's column that it is equal to.
    """

    groups: GroupBy | Distinct
    names: tuple[tuple[str, str], ...]


def lower_sides(ctx: Context, node: Join, pairs: list[tuple[str, str]]) -> tuple[Stream, Stream]:
    """Return the sides of a join; one that groups rows of files may leave out those without a partner.

    Parameters
    ----------
    pairs
        The columns of both sides that are equal in rows that match.
    """
    for side in ("left", "right"):
        found = _lower_grouped(ctx, node, side, pairs if side == "left" else [(b, a) for a, b in pairs])
        if found is not None:
            grouped, other = found
            return (grouped, other) if side == "left" else (other, grouped)
    return ctx.lower(node.left), ctx.lower(node.right)


def _lower_grouped(
    ctx: Context, node: Join, side: str, pairs: list[tuple[str, str]]
) -> tuple[Stream, Stream] | None:
    """Return a join's side that groups rows, and the other one; ``None`` where filtering the rows would not pay."""
    ours, theirs = (node.left, node.right) if side == "left" else (node.right, node.left)
    found = _grouped(ctx, ours, pairs)
    if found is None:
        return None
    child = found.groups.child
    # A pipeline of rows is read again, and may be planned again, at no cost.
    rows = ctx.lower(child)
    if rows.partitioning.collocates(_keys(found.groups)):
        return None  # nothing would move
    other = ctx.lower(theirs)
    if not can_filter(ctx, node, side, rows, child, other):
        # The other side is planned; it must not be again, for it may be read by several.
        return ctx.lower(ours), other
    other = ctx.builder.materialize(ctx.builder.disjoint(other), "its keys filter the other side of a join")
    if ctx.builder.findings.measure(other, ctx.builder.settings.filter_limit).complete:
        ctx.left_out[found.groups] = lambda stream: filter_by_keys(
            ctx, other, theirs, stream, child, found.names, nulls_equal=node.nulls_equal
        )
    return ctx.lower(ours), other


def _keys(groups: GroupBy | Distinct) -> list[str]:
    if isinstance(groups, GroupBy):
        return [key.expr.name for key in groups.keys if isinstance(key.expr, Column)]
    return list(groups.subset if groups.subset is not None else groups.child.schema)


def _grouped(ctx: Context, node: Node, pairs: list[tuple[str, str]]) -> _Grouped | None:
    """Return what makes groups under steps that work row by row; ``None`` where there is no such thing."""
    while pairs and ctx.properties.users(node) == 1:
        match node:
            case SimpleProjection() | Filter() | Select() | HStack():
                if not is_row_step(node):
                    return None
                below = [(renamed(node, name), other) for name, other in pairs]
            case GroupBy(slice=None, dynamic=None, rolling=None):
                below = [(renamed(node, name), other) for name, other in pairs]
            case Distinct(slice=None):
                kept = _keys(node)
                below = [(name if name in kept else None, other) for name, other in pairs]
            case _:
                return None
        pairs = [(name, other) for name, other in below if name is not None]
        if isinstance(node, GroupBy | Distinct):
            is_of_files = ctx.properties.is_row_pipeline(node.child)
            return _Grouped(node, tuple(pairs)) if pairs and is_of_files else None
        node = node.child
    return None

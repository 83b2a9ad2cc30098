"""Moves slices of rows down to where they save work: below row-wise steps, into sorts and into scans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cudf_polars.plan.dag import map_nodes, walk_nodes
from cudf_polars.plan.nodes import HStack, Node, Scan, Select, SimpleProjection, Slice, Sort
from cudf_polars.plan.properties import is_elementwise, is_scalar

__all__ = ["push_slices"]


def push_slices(root: Node) -> Node:
    """Return the plan with slices below the row-wise steps, and inside the sorts and scans, that they apply to.

    Polars does this itself, except in queries over data frames (see :mod:`cudf_polars.plan.read`): there it would
    slice the frames as well. It saves more than time: a step that fails on a row outside the slice must not see it.
    Nodes that several others read stay as they are.
    """
    all_nodes = list(walk_nodes(root))
    users = Counter(child for node in all_nodes for child in node.children)
    shared: set[Node] = set()

    def push(node: Node, new: Node) -> Node:
        if isinstance(new, Slice):
            new = _pushed(new, shared)
        if users[node] > 1:
            shared.add(new)
        return new

    return map_nodes(all_nodes, push)


def _pushed(node: Slice, shared: set[Node]) -> Node:
    child, rows = node.child, (node.offset, node.length)
    if child in shared:
        return node
    match child:
        case Sort(slice=None) | Scan(slice=None, predicate=None):
            return replace(child, slice=rows)
        case SimpleProjection() | HStack() | Select() if _is_row_wise(child):
            below = _pushed(Slice(child.child, *rows, schema=child.child.schema), shared)
            if (
                isinstance(child, SimpleProjection)
                and isinstance(below, Slice)
                and below.child is child.child
            ):
                return node  # rows are sliced when they have their fewest columns
            return replace(child, child=below)
    return node


def _is_row_wise(node: SimpleProjection | HStack | Select) -> bool:
    """Whether a step makes a row of each row, by itself."""
    if not all(map(is_elementwise, node.expressions)):
        return False
    return not isinstance(node, Select) or not all(map(is_scalar, node.expressions))

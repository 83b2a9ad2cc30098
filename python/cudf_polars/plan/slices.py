"""Moves slices of rows down to where they save work: into sorts, which then need no full order, and into scans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cudf_polars.plan.nodes import Node, Scan, SimpleProjection, Slice, Sort, walk_nodes

__all__ = ["push_slices"]


def push_slices(root: Node) -> Node:
    """Return the plan with slices inside the sorts and scans that they cut.

    Polars does this itself, except in queries over data frames (see :mod:`cudf_polars.plan.read`): there it would
    slice the frames as well. Nodes that several others read stay as they are.
    """
    users: Counter[int] = Counter()
    for node in walk_nodes(root):
        users.update(id(child) for child in node.children)
    done: dict[int, Node] = {}
    for node in walk_nodes(root):
        new = node.with_children([done[id(child)] for child in node.children])
        if isinstance(node, Slice) and isinstance(new, Slice) and users[id(node.child)] == 1:
            below = node.child
            # a projection between them may be shared itself, and then what is under it is, too
            shared = isinstance(below, SimpleProjection) and users[id(below.child)] > 1
            new = new if shared else _pushed(new)
        done[id(node)] = new
    return done[id(root)]


def _pushed(node: Slice) -> Node:
    rows = (node.offset, node.length)
    match node.child:
        case Sort(slice=None) as sort:
            return replace(sort, slice=rows)
        case Scan(slice=None, predicate=None) as scan:
            return replace(scan, slice=rows)
        case (
            SimpleProjection(child=Sort(slice=None) | Scan(slice=None, predicate=None) as below) as projection
        ):
            return replace(projection, child=replace(below, slice=rows))
    return node

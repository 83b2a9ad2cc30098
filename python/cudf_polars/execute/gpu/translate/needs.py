"""Which columns of each node are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cudf_polars.plan import nodes
from cudf_polars.plan.dag import walk_nodes
from cudf_polars.plan.expressions import Cast, Column, Expr
from cudf_polars.plan.properties import columns

__all__ = ["column_needs", "join_names"]


def column_needs(root: nodes.Node) -> dict[nodes.Node, set[str]]:
    """Return the names of the columns of each node that the nodes above it, or the result, use."""
    needs: dict[nodes.Node, set[str]] = {node: set() for node in walk_nodes(root)}
    needs[root] = set(root.schema)
    for node in reversed(list(needs)):
        wanted = needs[node]
        for child, names in zip(node.children, _of_children(node, wanted), strict=True):
            needs[child].update(name for name in names if name in child.schema)
    return needs


def _of_children(node: nodes.Node, wanted: set[str]) -> list[Iterable[str]]:
    match node:
        case nodes.Select():
            # Of a table that is only counted, one column is computed.
            made = [e for e in node.exprs if e.name in wanted] or node.exprs[:1]
            return [{c for e in made for c in columns(e.expr)}]
        case nodes.HStack():
            new = {e.name for e in node.exprs}
            used = {c for e in node.exprs if e.name in wanted for c in columns(e.expr)}
            return [used | (wanted - new)]
        case nodes.Filter():
            return [wanted | set(columns(node.predicate))]
        case nodes.GroupBy() if node.dynamic is None and node.rolling is None:
            keys = {c for e in node.keys for c in columns(e.expr)}
            return [keys | {c for e in node.aggs if e.name in wanted for c in columns(e.expr)}]
        case nodes.Join() if node.asof is None:
            return _of_sides(node, wanted)
        case nodes.Sort():
            return [wanted | {c for e in node.by for c in columns(e.expr)}]
        case nodes.Distinct():
            return [set(node.child.schema) if node.subset is None else wanted | set(node.subset)]
        case nodes.Slice() | nodes.SimpleProjection() | nodes.HintSorted() | nodes.Union():
            return [wanted for _ in node.children]
        case _:
            return [child.schema for child in node.children]


def _of_sides(node: nodes.Join, wanted: set[str]) -> list[Iterable[str]]:
    left, right = join_names(node)
    if node.predicate is not None:
        wanted = wanted | set(columns(node.predicate))
    of_left = {left[name] for name in wanted if name in left}
    of_right = {right[name] for name in wanted if name in right}
    of_left.update(c for e in node.left_on for c in columns(e.expr))
    of_right.update(c for e in node.right_on for c in columns(e.expr))
    return [of_left, of_right]


def join_names(node: nodes.Join) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the columns of a join's two sides under the names that they have in its result.

    Keys that are coalesced have one column: the left one, but for right joins.
    """
    left = {name: name for name in node.left.schema}
    if node.how in ("semi", "anti"):
        return left, {}
    right_keys = {name for e in node.right_on if (name := _key_column(e.expr)) is not None}
    dropped: set[str] = set()
    if node.coalesce and node.how == "right":
        for e in node.left_on:
            left.pop(_key_column(e.expr) or "", None)
    elif node.coalesce and node.how in ("inner", "left", "full"):
        dropped = right_keys
    right: dict[str, str] = {}
    for name in node.right.schema:
        if name not in dropped:
            right[name + node.suffix if name in left else name] = name
    return left, right


def _key_column(expr: Expr) -> str | None:
    """Return the column that is a key; Polars casts keys whose types differ, and coalesces the columns."""
    while isinstance(expr, Cast):
        (expr,) = expr.children
    return expr.name if isinstance(expr, Column) else None

"""From which table the values of a column come."""

from __future__ import annotations

from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import (
    DataFrameScan,
    Distinct,
    Filter,
    GroupBy,
    HStack,
    Join,
    Node,
    Scan,
    Select,
    SimpleProjection,
    Slice,
    Sort,
)

__all__ = ["origin_of", "renamed"]


def origin_of(node: Node, name: str, *, of_groups: bool = True) -> tuple[Scan | DataFrameScan, str] | None:
    """Return the source from which a column of ``node`` comes as it is, and what it is called there.

    Parameters
    ----------
    of_groups
        Whether groups may have been made of its rows on the way.
    """
    while True:
        found: tuple[Node, str | None] | None = None
        match node:
            case Scan() | DataFrameScan():
                return node, name
            case Join(how="inner" | "left" | "semi" | "anti" | "right" | "cross"):
                if name in node.left.schema and node.how != "right":
                    found = node.left, name
                elif name in node.right.schema and name not in node.left.schema:
                    found = node.right, name
            case GroupBy() | Distinct() if not of_groups:
                pass
            case Filter() | SimpleProjection() | Slice() | Sort() | Distinct():
                found = node.child, name
            case Select() | HStack() | GroupBy():
                found = node.child, renamed(node, name)
        if found is None or found[1] is None or found[1] not in found[0].schema:
            return None
        node, name = found[0], found[1]


def renamed(node: Node, name: str) -> str | None:
    """Return the column of a step's input that one of its results is as it is, if there is one.

    Steps that compute no columns pass them on.
    """
    match node:
        case Select():
            exprs = {e.name: e.expr for e in node.exprs}
        case GroupBy():
            exprs = {key.name: key.expr for key in node.keys}
        case HStack():
            exprs = {e.name: e.expr for e in node.exprs}
            if name not in exprs:
                return name
        case _:
            return name
    expr = exprs.get(name)
    return expr.name if isinstance(expr, Column) else None

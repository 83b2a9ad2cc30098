"""Tables of one row, whatever rows there are below: aggregates of whole tables, such as scalar sub-queries of SQL."""

from __future__ import annotations

from dataclasses import replace

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.properties import is_elementwise, is_scalar, substitute, walk

__all__ = ["has_one_row", "read_repeated_columns"]


def has_one_row(node: nodes.Node) -> bool:
    """Whether the table has one row, whatever rows there are below."""
    match node:
        case nodes.Select():
            exprs = [e.expr for e in node.exprs]
            if exprs and all(map(is_scalar, exprs)):
                return True
            return all(map(is_elementwise, exprs)) and has_one_row(node.child)
        case nodes.HStack() | nodes.SimpleProjection():
            return has_one_row(node.child)
        case nodes.Join(how="cross", predicate=None, slice=None):
            return has_one_row(node.left) and has_one_row(node.right)
    return False


def _repeated_columns(node: nodes.Node) -> frozenset[str]:
    """Return the columns that have the same value in each row: those of a table of one row beside other rows."""
    match node:
        case nodes.Join(how="cross", predicate=None):
            found = (
                _repeated_columns(node.left) if not has_one_row(node.left) else frozenset(node.left.schema)
            )
            if has_one_row(node.right):
                # Where both sides have a name, the join gives the right side's column a suffix.
                found |= node.right.schema.keys() - node.left.schema.keys()
            return found & node.schema.keys()
        case nodes.Filter() | nodes.SimpleProjection():
            return _repeated_columns(node.child) & node.schema.keys()
        case nodes.HStack():
            return _repeated_columns(node.child) - {e.name for e in node.exprs}
    return frozenset()


def read_repeated_columns(node: nodes.Select | nodes.HStack | nodes.Filter) -> nodes.Node:
    """Return the step with the value of each row in the place of the first of values that are all the same.

    So the rows need not be read twice. Only what is row-wise then is changed.
    """
    repeated = _repeated_columns(node.child)
    if not repeated or (isinstance(node, nodes.Select) and all(is_scalar(e.expr) for e in node.exprs)):
        return node

    def read(expr: ex.Expr) -> ex.Expr:
        firsts: dict[ex.Expr, ex.Expr] = {
            part: part.child
            for part in walk(expr)
            if isinstance(part, ex.Agg)
            and part.name == "first"
            and isinstance(part.child, ex.Column)
            and part.child.name in repeated
        }
        changed = substitute(expr, firsts) if firsts else expr
        return changed if is_elementwise(changed) else expr

    if isinstance(node, nodes.Filter):
        return replace(node, predicate=read(node.predicate))
    return replace(node, exprs=tuple(replace(e, expr=read(e.expr)) for e in node.exprs))

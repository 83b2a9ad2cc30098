"""Takes expressions apart: row-wise steps, windows, and which columns they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cudf_polars.plan.expressions import Column, Expr, Literal, Rolling, Window
from cudf_polars.plan.nodes import Filter, HStack, Node, Select, SimpleProjection
from cudf_polars.plan.properties import is_elementwise

__all__ = [
    "Extended",
    "extended",
    "is_rowwise_step",
    "over_wide_rows",
    "renames",
    "windows",
    "with_expressions",
    "with_values_of_windows",
]


@dataclass
class Extended:
    """A node over columns that its input gets first: those that some parts of its expressions become.

    Attributes
    ----------
    node
        The node.
    columns
        The columns that it needs beside those of its input, by what they are.
    """

    node: Select | HStack | Filter
    columns: dict[Expr, Column] = field(default_factory=dict)

    def column(self, expr: Expr, prefix: str) -> Column:
        """Return the column of a part."""
        return self.columns.setdefault(expr, Column(f"{prefix}{len(self.columns)}", dtype=expr.dtype))


def extended(node: Select | HStack | Filter, prefix: str, is_part: Callable[[Expr], bool]) -> Extended:
    """Return a node with a column for each part of its expressions that ``is_part`` says, wherever it is in them.

    Inside a window, a part is another one: it is of the window's rows.

    Parameters
    ----------
    prefix
        How the names of the columns begin.
    """
    found = Extended(node)

    def rewrite(expr: Expr) -> Expr:
        if is_elementwise(expr):
            return expr
        if is_part(expr):
            return found.column(expr, prefix)
        if isinstance(expr, Window | Rolling):
            return expr
        return expr.with_children(list(map(rewrite, expr.children)))

    found.node = with_expressions(node, rewrite)
    return found


def with_expressions(
    node: Select | HStack | Filter, change: Callable[[Expr], Expr]
) -> Select | HStack | Filter:
    """Return a node with each of its expressions changed."""
    if isinstance(node, Filter):
        return replace(node, predicate=change(node.predicate))
    return replace(node, exprs=tuple(each.with_expr(change(each.expr)) for each in node.exprs))


def is_rowwise_step(expr: Expr) -> bool:
    """Whether ``expr``, over given inputs, is row-wise; the inputs themselves are not looked at."""
    if not expr.children:
        return is_elementwise(expr)
    blank = tuple(
        child if isinstance(child, Literal) else Column(f"__rr_{i}", dtype=child.dtype)
        for i, child in enumerate(expr.children)
    )
    return is_elementwise(expr.with_children(blank))


def windows(expr: Expr) -> list[Window]:
    """Return the outermost windows in ``expr``; those inside rolling windows are of the rows of these."""
    if isinstance(expr, Window):
        return [expr]
    if isinstance(expr, Rolling):
        return []
    return [window for child in expr.children for window in windows(child)]


def with_values_of_windows(
    node: Select | HStack | Filter, values: Mapping[Window, Expr]
) -> Select | HStack | Filter:
    """Return a node with some of its outermost windows replaced."""

    def rewrite(expr: Expr) -> Expr:
        if isinstance(expr, Window):
            return values.get(expr, expr)
        return expr.with_children([rewrite(child) for child in expr.children]) if windows(expr) else expr

    return with_expressions(node, rewrite)


def over_wide_rows(node: Select | HStack | Filter, rows: Node) -> Node:
    """Return ``node`` over rows that have further columns, which its result has not."""
    if isinstance(node, Select):
        return replace(node, child=rows)
    schema = {**rows.schema, **node.schema} if isinstance(node, HStack) else rows.schema
    return SimpleProjection(replace(node, child=rows, schema=schema), schema=node.schema)


def renames(node: Select | HStack | Filter, columns: Iterable[str]) -> dict[str, list[str]]:
    """Return which of the input's ``columns`` a node keeps, and under which names."""
    if isinstance(node, Filter):
        return {name: [name] for name in node.schema}
    kept: dict[str, list[str]] = {}
    if isinstance(node, HStack):
        replaced = {output.name for output in node.exprs}
        kept = {name: [name] for name in columns if name not in replaced}
    for output in node.exprs:
        if isinstance(output.expr, Column):
            kept.setdefault(output.expr.name, []).append(output.name)
    return kept

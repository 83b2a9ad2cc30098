"""Takes expressions apart: row-wise steps and windows."""

from __future__ import annotations

from cudf_polars.plan.expressions import Column, Expr, Literal, Window
from cudf_polars.plan.properties import is_elementwise

__all__ = ["is_rowwise_step", "windows"]


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
    """Return the outermost windows in ``expr``."""
    if isinstance(expr, Window):
        return [expr]
    return [window for child in expr.children for window in windows(child)]

"""Takes expressions apart: row-wise steps, windows, and parts to be replaced."""

from __future__ import annotations

from collections.abc import Callable

from cudf_polars.plan.expressions import Column, Expr, Literal, Window
from cudf_polars.plan.properties import is_elementwise

__all__ = ["contains_window", "is_rowwise_step", "replace_parts", "windows"]


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


def contains_window(expr: Expr) -> bool:
    """Whether some part of ``expr`` is a window."""
    return isinstance(expr, Window) or any(map(contains_window, expr.children))


def replace_parts(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Return ``expr`` with the outermost parts for which ``replace`` gives something replaced by that."""
    new = replace(expr)
    if new is not None:
        return new
    if not expr.children:
        return expr
    return expr.with_children(tuple(replace_parts(child, replace) for child in expr.children))

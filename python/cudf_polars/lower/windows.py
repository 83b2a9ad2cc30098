"""Windows: rows of a partition meet on one rank, the window is computed there, and the order is restored."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.lower.aggregates import ORDER
from cudf_polars.lower.context import Context
from cudf_polars.lower.physical import Stream
from cudf_polars.lower.shape import is_rowwise_step, windows
from cudf_polars.plan.expressions import Column, Expr, NamedExpr, Window
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import depends_on_order, is_elementwise

__all__ = ["lower_windows", "window_keys"]


def window_keys(node: Select | HStack | Filter) -> list[str] | None:
    """Return the columns whose equal rows have to meet for the node's windows.

    ``None`` if there are none: its expressions are not row-wise around windows, or their partitions have no column in
    common.
    """
    found = [window for expr in node.expressions for window in windows(expr)]
    if not all(_is_local(window) for window in found) or not all(map(_rowwise_but_windows, node.expressions)):
        return None
    return _common_keys(found) if found else None


def lower_windows(ctx: Context, node: Select | HStack | Filter, child: Stream) -> Stream:
    """Compute ``node``, which has :func:`window_keys`."""
    keys = window_keys(node)
    assert keys is not None
    found = [window for expr in node.expressions for window in windows(expr)]
    builder = ctx.builder
    ordered = ctx.ordered(node)
    if child.partitioning.collocates(keys):
        return ctx.apply(node, [child])
    sensitive = any(depends_on_order(window) for window in found)
    if ordered or sensitive:
        child = builder.attach_order(child)
    moved = builder.gather_or_shuffle(child, keys, "windows")
    if ordered or sensitive:
        moved = builder.sort_locally(moved, [ORDER])
    if not ordered:
        if sensitive:
            moved = builder.select(moved, [name for name in moved.schema if name != ORDER])
        return ctx.apply(node, [moved], ordered=False)
    schema = {**node.schema, ORDER: pl.UInt64()}
    numbered: Select | HStack | Filter = replace(node, schema=schema)
    if isinstance(numbered, Select):
        position = NamedExpr(ORDER, Column(ORDER, dtype=pl.UInt64()))
        numbered = replace(numbered, exprs=(*numbered.exprs, position))
    result = ctx.apply(numbered, [moved])
    return builder.restore_order(result, [ORDER])


def _is_local(window: Window) -> bool:
    """Whether a window needs its own partition only and gives each row its value."""
    return (
        bool(window.partition_by)
        and window.mapping != "explode"
        and all(isinstance(key, Column) for key in window.partition_by)
    )


def _rowwise_but_windows(expr: Expr) -> bool:
    if isinstance(expr, Window) or is_elementwise(expr):
        return True
    return bool(expr.children) and is_rowwise_step(expr) and all(map(_rowwise_but_windows, expr.children))


def _common_keys(found: list[Window]) -> list[str] | None:
    """Return columns that every window partitions by: rows that agree in them hold whole partitions of each."""
    common: set[str] | None = None
    for window in found:
        names = {key.name for key in window.partition_by if isinstance(key, Column)}
        common = names if common is None else common & names
    if not common:
        return None
    first = [key.name for key in found[0].partition_by if isinstance(key, Column)]
    return [name for name in dict.fromkeys(first) if name in common]

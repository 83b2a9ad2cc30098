"""Windows: rows of a partition meet on one rank, the window is computed there, and the order is restored.

Windows whose partitions have no column in common are computed one after the other, each a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl

from cudf_polars.lower.aggregates import ORDER
from cudf_polars.lower.context import Context
from cudf_polars.lower.physical import Stream
from cudf_polars.lower.shape import Extended, is_rowwise_step, windows, with_expressions
from cudf_polars.plan.expressions import (
    BinaryOp,
    Cast,
    CastMode,
    Column,
    Expr,
    Function,
    Len,
    Literal,
    NamedExpr,
    Operator,
    Window,
)
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import columns, depends_on_order, is_elementwise, is_length_preserving

__all__ = ["OF_EQUAL_ROWS", "are_windows", "keyed_windows", "lower_windows"]

_WINDOW = "__rr_window_value"
"""The columns of windows that have been computed."""
OF_EQUAL_ROWS = ("is_unique", "is_duplicated", "is_first_distinct", "is_last_distinct")
"""Functions that look at the rows of equal values: windows over the values."""


def keyed_windows(node: Select | HStack | Filter) -> Extended:
    """Return a node with a column for each computed key of a window; what is a window in other words becomes one."""
    found = Extended(node)

    def key(expr: Expr) -> Expr:
        if isinstance(expr, Column) or expr.dtype is None or not (is_elementwise(expr) and columns(expr)):
            return expr
        return found.column(expr, "__rr_window_key")

    def change(window: Window) -> Expr:
        if _is_of_all_rows(window):
            return window.child
        return replace(window, partition_by=tuple(map(key, window.partition_by)))

    found.node = _with_windows(node, change)
    return found


def _is_of_all_rows(window: Window) -> bool:
    """Whether a window has one partition, and a row for each row in their order: that is its expression by itself."""
    return (
        bool(window.partition_by)
        and all(isinstance(key, Literal) and key.scalar for key in window.partition_by)
        and window.order_by is None
        and window.mapping == "group_to_rows"
        and is_length_preserving(window.child)
        and bool(columns(window.child))
    )


def _with_windows(
    node: Select | HStack | Filter, change: Callable[[Window], Expr]
) -> Select | HStack | Filter:
    """Replace the outermost windows of a node."""

    def rewrite(expr: Expr) -> Expr:
        if is_elementwise(expr):
            return expr
        if isinstance(expr, Function) and expr.name in OF_EQUAL_ROWS:
            return change(window) if (window := _of_equal_rows(expr)) is not None else expr
        if isinstance(expr, Window):
            return change(expr)
        if not expr.children or not is_rowwise_step(expr):
            return expr
        return expr.with_children([rewrite(child) for child in expr.children])

    return with_expressions(node, rewrite)


def _of_equal_rows(expr: Function) -> Window | None:
    """Return one of :data:`OF_EQUAL_ROWS` as a window over its values."""
    (value,) = expr.inputs
    if value.dtype is None or value.dtype.is_nested() or not (is_elementwise(value) and columns(value)):
        return None
    boolean, number = pl.Boolean(), pl.Int64()
    rows = Cast(Len(dtype=pl.UInt32()), number, CastMode.STRICT, dtype=number)
    one = Literal(1, dtype=number)
    if expr.name in ("is_unique", "is_duplicated"):
        operator = Operator.EQ if expr.name == "is_unique" else Operator.GT
        test = BinaryOp(operator, rows, one, dtype=boolean)
    else:
        place = Function("int_range", (Literal(0, dtype=number), rows), (1, number), dtype=number)
        first = Literal(0, dtype=number)
        last = BinaryOp(Operator.SUB, rows, one, dtype=number)
        wanted = first if expr.name == "is_first_distinct" else last
        test = BinaryOp(Operator.EQ, place, wanted, dtype=boolean)
    return Window(test, (value,), None, False, False, "group_to_rows", dtype=boolean)


def are_windows(node: Select | HStack | Filter) -> bool:
    """Whether a node is made of windows that their own partitions suffice for, and of row-wise steps around them."""
    found = [window for expr in node.expressions for window in windows(expr)]
    if not found or not all(map(_is_local, found)) or not all(map(_rowwise_but_windows, node.expressions)):
        return False
    # What becomes a column of its own has a known type.
    return _common_keys(found) is not None or all(window.dtype is not None for window in found)


def lower_windows(ctx: Context, node: Select | HStack | Filter, child: Stream, *, ordered: bool) -> Stream:
    """Compute ``node``, for which :func:`are_windows` holds; ``ordered``: in the order of ``child``."""
    found = [window for expr in node.expressions for window in windows(expr)]
    keys = _common_keys(found)
    if keys is not None:
        return _over(ctx, node, child, keys, ordered=ordered)
    together = [window for window in found if _common_keys([found[0], window])]
    while _common_keys(together) is None:
        together.pop()
    depth = sum(name.startswith(_WINDOW) for name in child.schema)
    computed = {window: f"{_WINDOW}{depth + n}" for n, window in enumerate(dict.fromkeys(together))}
    first = HStack(
        node.child,
        tuple(NamedExpr(name, window) for window, name in computed.items()),
        schema={**child.schema, **{name: _dtype(window) for window, name in computed.items()}},
    )
    keys = _common_keys(together)
    assert keys is not None
    kept = ordered or any(map(depends_on_order, found))
    wide = _over(ctx, first, child, keys, ordered=kept)

    def change(window: Window) -> Expr:
        return Column(computed[window], dtype=window.dtype) if window in computed else window

    rest = _with_windows(node, change)
    if isinstance(rest, Filter):
        rest = replace(rest, schema=wide.schema)
    elif isinstance(rest, HStack):
        rest = replace(rest, schema={**wide.schema, **node.schema})
    left = lower_windows(ctx, rest, wide, ordered=ordered)
    return ctx.builder.select(left, list(node.schema))


def _dtype(window: Window) -> pl.DataType:
    assert window.dtype is not None
    return window.dtype


def _over(
    ctx: Context, node: Select | HStack | Filter, child: Stream, keys: list[str], *, ordered: bool
) -> Stream:
    """Compute windows that have ``keys`` in common."""
    found = [window for expr in node.expressions for window in windows(expr)]
    builder = ctx.builder
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
        # Polars computes it of the whole table, before it makes partitions.
        and (window.order_by is None or is_elementwise(window.order_by))
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

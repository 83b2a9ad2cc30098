"""Selections of one column's distinct values or runs, and of how often each occurs, as the group-bys that give them."""

from __future__ import annotations

import polars as pl

from cudf_polars.lower.shape import is_rowwise_step
from cudf_polars.plan.expressions import (
    Agg,
    BinaryOp,
    Column,
    Expr,
    Function,
    Len,
    Literal,
    NamedExpr,
    Operator,
)
from cudf_polars.plan.nodes import Filter, GroupBy, Node, Select, Slice, Sort
from cudf_polars.plan.properties import columns, is_elementwise

__all__ = ["DISTINCT_VALUES", "as_groups"]

DISTINCT_VALUES = ("value_counts", "unique_counts", "mode", "top_k", "rle")
"""The functions that are steps over tables where a selection has one of them and nothing else."""
_VALUE, _COUNT, _RUN, _INNER = "__rr_value", "__rr_count", "__rr_run", "__rr_inner"


def as_groups(node: Select) -> Node | None:
    """Return a selection as steps over tables; ``None`` if it is not one of these."""
    if len(node.exprs) != 1:
        return None
    (output,) = node.exprs
    match output.expr:
        case Function("value_counts", (values,), (sort, _, _, False)) if _is_plain(values):
            return _value_counts(node, values, sort=sort)
        case Function("unique_counts", (values,)) if _is_plain(values):
            count = node.schema[output.name]
            groups = _groups(node, values, _VALUE, output.name, count, ordered=True)
            return Select(groups, (_column(output.name, count),), schema=node.schema)
        case Function("rle", (values,)) if _is_plain(values):
            return _runs(node, values)
        case Function("mode", (values,), (ordered,)) if _is_plain(values):
            return _mode(node, values, ordered=ordered)
        case Function("top_k", (values, Literal(int() as k)), (reverse,)) if _is_plain(values) and k >= 0:
            rows = Select(node.child, (NamedExpr(output.name, values),), schema=node.schema)
            key = _column(output.name, node.schema[output.name])
            in_order = Sort(rows, (key,), (not reverse,), (True,), False, schema=node.schema)
            return Slice(in_order, 0, k, schema=node.schema)
    return _beyond(node, output.expr)


def _beyond(node: Select, expr: Expr) -> Node | None:
    """Return a row-wise step over one of these functions, as that step over what becomes of the function."""
    rows = [child for child in expr.children if not isinstance(child, Literal)]
    if len(rows) != 1 or rows[0].dtype is None or is_elementwise(rows[0]) or not is_rowwise_step(expr):
        return None
    inner = Select(node.child, (NamedExpr(_INNER, rows[0]),), schema={_INNER: rows[0].dtype})
    groups = as_groups(inner)
    if groups is None:
        return None
    value = Column(_INNER, dtype=rows[0].dtype)
    over = expr.with_children([value if child is rows[0] else child for child in expr.children])
    return Select(groups, (NamedExpr(node.exprs[0].name, over),), schema=node.schema)


def _is_plain(values: Expr) -> bool:
    """Whether values are made row by row, and are of a type that has an order."""
    dtype = values.dtype
    return (
        dtype is not None
        and not dtype.is_nested()
        and dtype not in (pl.Null, pl.Object)
        and is_elementwise(values)
        and bool(columns(values))
    )


def _column(name: str, dtype: pl.DataType) -> NamedExpr:
    return NamedExpr(name, Column(name, dtype=dtype))


def _groups(
    node: Select, values: Expr, value: str, count: str, number: pl.DataType, *, ordered: bool
) -> GroupBy:
    """Return the distinct values with their numbers; ``ordered``: in the order of their first rows."""
    assert values.dtype is not None
    rows = Select(node.child, (NamedExpr(value, values),), schema={value: values.dtype})
    return GroupBy(
        rows,
        (_column(value, values.dtype),),
        (NamedExpr(count, Len(dtype=number)),),
        maintain_order=ordered,
        schema={value: values.dtype, count: number},
    )


def _value_counts(node: Select, values: Expr, *, sort: bool) -> Node | None:
    (output,) = node.exprs
    struct = node.schema[output.name]
    assert isinstance(struct, pl.Struct)
    value, count = struct.fields
    number = count.dtype if isinstance(count.dtype, pl.DataType) else count.dtype()
    assert values.dtype is not None
    rows: Node = _groups(node, values, value.name, count.name, number, ordered=False)
    if sort:
        rows = Sort(rows, (_column(count.name, number),), (True,), (False,), False, schema=dict(rows.schema))
    pair = Function(
        "as_struct",
        (Column(value.name, dtype=values.dtype), Column(count.name, dtype=number)),
        ((value.name, count.name),),
        dtype=struct,
    )
    return Select(rows, (NamedExpr(output.name, pair),), schema=node.schema)


def _runs(node: Select, values: Expr) -> Node:
    """Return the runs of equal values: the groups of what numbers them."""
    (output,) = node.exprs
    struct = node.schema[output.name]
    assert isinstance(struct, pl.Struct)
    length, value = struct.fields
    number = length.dtype if isinstance(length.dtype, pl.DataType) else length.dtype()
    dtype, place = values.dtype, pl.UInt32()
    assert dtype is not None
    rows = Select(
        node.child,
        (NamedExpr(_VALUE, values), NamedExpr(_RUN, Function("rle_id", (values,), dtype=place))),
        schema={_VALUE: dtype, _RUN: place},
    )
    first = Agg("first", Column(_VALUE, dtype=dtype), dtype=dtype)
    runs = GroupBy(
        rows,
        (_column(_RUN, place),),
        (NamedExpr(_COUNT, Len(dtype=number)), NamedExpr(_VALUE, first)),
        maintain_order=True,
        schema={_RUN: place, _COUNT: number, _VALUE: dtype},
    )
    pair = Function(
        "as_struct",
        (Column(_COUNT, dtype=number), Column(_VALUE, dtype=dtype)),
        ((length.name, value.name),),
        dtype=struct,
    )
    return Select(runs, (NamedExpr(output.name, pair),), schema=node.schema)


def _mode(node: Select, values: Expr, *, ordered: bool) -> Node:
    (output,) = node.exprs
    number = pl.UInt32()
    groups = _groups(node, values, output.name, _COUNT, number, ordered=ordered)
    count = Column(_COUNT, dtype=number)
    most = BinaryOp(Operator.EQ, count, Agg("max", count, dtype=number), dtype=pl.Boolean())
    chosen = Filter(groups, most, schema=groups.schema)
    return Select(chosen, (_column(output.name, node.schema[output.name]),), schema=node.schema)
